"""Does a whole run, each step unless it is whole already: up, submit, logs, pull, down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from msgspec.structs import replace

from tpuctl import accelerators
from tpuctl.client.context import Call, Context, seconds
from tpuctl.client.nodes import changes, creation
from tpuctl.client.nodes.creation import NodeOptions
from tpuctl.client.options import check_options
from tpuctl.client.records import moment
from tpuctl.client.runs import busy, starting, steps, submission
from tpuctl.client.runs.busy import Policy
from tpuctl.client.runs.records import LogCallback, LogLine
from tpuctl.errors import InterruptedByUser, NotFoundError, TpuctlError, UsageError
from tpuctl.flows.nodes import down
from tpuctl.flows.nodes.lifetime import NET, Lifetime, can_end_itself, require_time_left
from tpuctl.flows.nodes.lookup import take_inventory
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.progress import Report
from tpuctl.flows.runs import pull as results
from tpuctl.flows.runs import whole
from tpuctl.flows.runs.code.bundles import Report as ReportCode
from tpuctl.flows.runs.control.occupants import occupants
from tpuctl.flows.runs.logs.following import follow
from tpuctl.flows.runs.logs.reader import Line, LogReader
from tpuctl.flows.runs.recovery import drill
from tpuctl.flows.runs.recovery.machine import machine_name
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values, submit
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest, on_node, read_header
from tpuctl.flows.runs.whole import (
    Phase,
    Position,
    Stage,
    await_restart,
    failed,
    interrupted,
    look,
    node_name,
    require_same,
)
from tpuctl.nodes import HttpRequest, Node
from tpuctl.runs import Tpu, Verdict
from tpuctl.shells import with_options


@dataclass(frozen=True)
class WholeRun:
    """What the user asks `run` for."""

    run: str
    request: SubmitRequest
    """With the name of the run."""
    typed: tuple[str, ...]
    """The words of the command that continues."""
    folder: Path
    """Where its files go."""
    types: Sequence[str] | None
    """Accelerator types of the node to make, in order; none for those of the header. None for no node."""
    machine: Callable[..., UpOptions]
    """Returns the options of the node for an `accelerator`, a `name` and a `framework`."""
    zones: tuple[str, ...] = ()
    wait: float = 0.0
    """Seconds for which capacity is waited for."""
    lifetime: Lifetime | None = None
    """When the node ends by itself; None where nobody says."""
    is_deleted: bool = False
    """Whether the node is deleted at the end."""
    policy: Policy = field(default_factory=Policy)
    is_named: bool = False
    """Whether the user has named the run, so that an earlier call may have begun it."""

    def __post_init__(self) -> None:
        if self.types is None and self.is_deleted:
            raise UsageError(
                "--down deletes the TPU of --up, and there is no --up.",
                hint="Add --up TYPE; a TPU that you have is deleted by 'tpuctl down'.",
            )
        if self.types is not None and (self.request.tpu or self.request.accelerator):
            option = "--tpu" if self.request.tpu else "--accelerator"
            raise UsageError(
                f"--up creates a TPU, and {option} is for one that exists.", hint="Remove one of them."
            )


class Screen(Protocol):
    """Says what the steps do, and decides what is to be decided on the way."""

    def note(self, text: str) -> None:
        """Say a sentence."""

    def steps(self) -> AbstractContextManager[Report]:
        """Open what shows the steps of a longer wait."""

    def count(self) -> AbstractContextManager[ReportCode]:
        """Open what shows how much of the code is packed or stored."""

    def show_node(self, plan: UpPlan) -> None:
        """Show the node that a dry run would create, and what it costs."""

    def show_run(self, plan: SubmitPlan) -> None:
        """Show what a dry run would start, and where each setting comes from."""

    def admit_node(self, plan: UpPlan) -> None:
        """Show what creates a node, and have it confirmed; raises DeclinedError."""

    def on_free_node(self, plan: SubmitPlan) -> SubmitPlan:
        """Return the plan for a free node, or to wait in line; raises what says that it is busy."""

    def follow(self, run: StoredRun) -> Verdict:
        """Show the log of a run until it ends, and return how it ended."""

    def begins(self) -> None:
        """Say how to continue: nothing refuses the run any more, and nothing is created yet."""

    def made(self, kind: str, name: str) -> None:
        """Note that a node or run is there."""


@dataclass(frozen=True)
class Ending:
    """What a whole run has left."""

    verdict: Verdict
    pulled: results.PullResult
    deleted: tuple[str, ...]
    """Names of the nodes that are deleted."""
    kept: str
    """Why the node stays, as a sentence; empty without one."""


class Steps:
    """One call on its way."""

    def __init__(self, context: Context, whole: WholeRun, screen: Screen) -> None:
        self._context = context
        self._whole = whole
        self._screen = screen
        self._cloud = context.cloud
        self._stored = StoredRun(self._cloud.bucket, whole.run, context.warn)
        self._position = Position(whole.run, whole.typed, is_named=whole.is_named)

    def requests(self) -> list[HttpRequest]:
        """Return what the steps that are not whole would change, and show what it costs; sends reads only."""
        stage = self._look()
        if stage.tpu is None and not stage.verdict:
            return self._first_requests()
        if stage.verdict and not stage.is_over:
            with self._screen.steps() as report:
                return drill.requests(self._stored, self._watch_tools(report))
        return self._removal_requests() if self._whole.is_deleted else []

    def _first_requests(self) -> list[HttpRequest]:
        provider = self._cloud.provider
        if self._whole.types is None:
            plan = self._planned()
            self._screen.show_run(plan)
            return submission.requests(self._context, plan)
        first = self._up_plans()[0]
        plan = self._planned(whole.node_of(first))
        self._screen.show_run(plan)
        if first.existing is None:
            self._screen.show_node(first)
        requests = [
            *creation.requests(self._context, first),
            *submit.requests(self._cloud.bucket, plan),
        ]
        if self._whole.is_deleted and first.existing is None:
            requests += whole.deletion_requests(provider, first)
        elif self._whole.is_deleted:
            requests += self._removal_requests()
        return requests

    def _removal_requests(self) -> list[HttpRequest]:
        inventory = take_inventory(self._cloud.provider)
        own = whole.own_nodes(inventory, self._whole.run, self._context.owner, self._cloud.bucket.name)
        return changes.down_requests(self._context, down.DownPlan(own))

    def go(self) -> Ending:
        """Do what is left to do, and return how the run ended, also one that did not succeed.

        The error of a step that fails or is interrupted says what goes on, what bills, and how to continue.
        """
        try:
            verdict = self._verdict()
            pulled = self._pull()
            return self._removed(verdict, pulled)
        except (KeyboardInterrupt, InterruptedByUser) as interrupt:
            raise interrupted(self._position, interrupt) from interrupt
        except Exception as error:
            raise failed(self._position, error) from error

    def _look(self) -> Stage:
        require_same(self._stored, self._whole.request)
        return look(self._stored, self._context.witnesses)

    def _verdict(self) -> Verdict:
        """Return how the run ended: at once where it has, else after all that is missing."""
        results.check_folder(self._whole.folder, self._whole.run)
        stage = self._look()
        if stage.tpu:
            self._at(Phase.STARTING, stage.tpu.name, stage.tpu.zone, exists=True)
        if stage.verdict and stage.is_over:
            self._screen.note(f"Run '{self._whole.run}' has ended: {stage.verdict.evidence}.")
            return stage.verdict
        if stage.is_restarted:
            self._restart()
        elif not stage.is_launched:
            failure = self._start(stage.tpu)
            if failure and not failure.restarts:
                return failure
        return self._followed()

    def _followed(self) -> Verdict:
        """Return how the run ended once no other attempt is to follow; starts it again where one is."""
        while True:
            self._at(Phase.RUNNING)
            verdict = self._screen.follow(self._stored)
            if not verdict.restarts:
                return verdict
            self._screen.note(
                f"Run '{verdict.run}' was {verdict.outcome}: {verdict.evidence}. It is started again."
            )
            self._restart()

    def _restart(self) -> None:
        """Start the run again, as 'tpuctl watch' does; returns at once where it goes on."""
        run = self._whole.run
        self._at(Phase.RESTARTING, machine_name(run, max(self._stored.attempt_numbers()) + 1))
        with self._screen.steps() as report:
            await_restart(self._stored, self._watch_tools(report))
        tpu = self._stored.last_readable_attempt().record.tpu
        self._at(Phase.RUNNING, tpu.name, tpu.zone, exists=True)

    def _watch_tools(self, report: Report) -> Tools:
        return steps.tools(self._context, report, dict(self._whole.request.environment))

    def _start(self, tpu: Tpu | None) -> Verdict | None:
        """Start the run on the node of its attempt, on one that is made for it, or on one that fits.

        Returns the verdict of a run that could not be started.
        """
        if tpu:
            try:
                node = self._cloud.provider.get_node(tpu.id)
            except NotFoundError:
                return None  # how that ends is settled like any end
            plan = self._planned(node)
        elif self._whole.types is not None:
            plan = self._made_node()
        else:
            plan = self._planned()
        if not tpu:
            plan = self._screen.on_free_node(plan)
        self._at(Phase.STARTING, plan.node.name, plan.node.zone, exists=True)
        self._position.is_kept = plan.node.is_kept_by_terraform
        plan = submission.admit(self._context, plan, self._screen.note)
        try:
            with self._screen.count() as report:
                started = submission.go_on(self._context, plan, report)
        except TpuctlError as error:
            verdict = self._stored.verdict()
            if verdict is None:
                raise
            if not verdict.restarts:
                self._screen.note(error.message)
            return verdict
        self._screen.made("runs", self._whole.run)
        for text in started.notes:
            self._screen.note(text)
        return None

    def _planned(self, node: Node | None = None) -> SubmitPlan:
        """Return the plan of the submission, on a node or on one that fits; says what is to be said of it."""
        with self._screen.count() as report:
            plan = submission.plan(self._context, self._whole.request, report, node)
        for text in plan.notes:
            self._screen.note(text)
        return plan

    def _made_node(self) -> SubmitPlan:
        """Return the plan on the node that is made, or is there; what can refuse it is read first."""
        ups, cloud = self._up_plans(), self._cloud
        first = ups[0]
        if first.stopped:
            require_time_left(first.stopped, cloud.server_time)
        plan = self._planned(whole.planned_node(first))
        for other in ups[1:]:
            price = creation.price_text(self._context, other)
            self._screen.note(f"Without capacity: {other.request.accelerator} instead, {price} per hour.")
        self._screen.admit_node(first)
        self._at(Phase.CREATING, first.options.name)
        with self._screen.steps() as report:
            allocation = whole.acquire(cloud.provider, cloud.ssh, ups, report)
        self._at(Phase.CREATING, allocation.name, allocation.zone, exists=True)
        self._screen.made("nodes", allocation.name)
        return on_node(plan, allocation.whole, cloud.data_bucket)

    def _up_plans(self) -> list[UpPlan]:
        """Return a plan for each type, in order; for a node that exists, that of its type alone."""
        context, whole = self._context, self._whole
        header = read_header(whole.request).tpuctl
        name, types = node_name(whole.run), self._types(header.accelerators)
        plans = list[UpPlan]()
        for accelerator in self._existing(name, types) or types:
            options = whole.machine(accelerator=accelerator, name=name, framework=header.framework)
            lifetime = self._lifetime(options.scopes)
            lifetime.check(slices=options.slices, scopes=options.scopes)
            search = creation.search_of(
                context, options, whole.zones, race=False, wait=whole.wait, detach=False
            )
            lifetime = creation.limited(context, options, lifetime, search)
            options = replace(
                options,
                lifetime=lifetime,
                bucket=context.config.get("bucket"),
                run=whole.run,
                typed=whole.typed,
            )
            plans.append(creation.plan_of(context, options, search))
        return plans

    def _lifetime(self, scopes: tuple[str, ...]) -> Lifetime:
        """Return when the node ends by itself: after an hour without use where it is to be deleted anyway."""
        if self._whole.lifetime is not None:
            return self._whole.lifetime
        has_net = self._whole.is_deleted and can_end_itself(scopes)
        return Lifetime(idle=NET, is_net=True) if has_net else Lifetime()

    def _types(self, of_header: Sequence[str]) -> list[str]:
        """Return the types as the API names them; raises UsageError without any."""
        configured = self._context.config.get("accelerator")
        names = self._whole.types or of_header or ([configured] if configured else [])
        if not names:
            raise UsageError(
                "There is no TPU type.", hint="Name one: --up v3-8, or accelerator in the header."
            )
        return [accelerators.accelerator(name).type for name in names]

    def _existing(self, name: str, types: Sequence[str]) -> list[str]:
        """Return the type of the node that an earlier call has made, if it is one of several."""
        if len(types) == 1:
            return []
        listed = take_inventory(self._cloud.provider).nodes
        own = (node.accelerator for node in listed if name in (node.name, node.queued_resource))
        return [kind for kind in own if kind in types][:1]

    def _pull(self) -> results.PullResult:
        """Fetch the run's files; raises StateError if some cannot be written to this disk."""
        self._at(Phase.FETCHING)
        with self._screen.steps() as report:
            pulled = results.pull(self._stored, self._whole.folder, report)
        for refusal in pulled.refused:
            self._context.warn(f"{refusal.name} {refusal.reason}: it is left out.")
        if pulled.refused:
            raise results.left_out(self._stored, pulled.refused)
        return pulled

    def _removed(self, verdict: Verdict, pulled: results.PullResult) -> Ending:
        """Delete the run's own node, or find out what stays."""
        cloud, context = self._cloud, self._context
        self._at(Phase.DELETING)
        inventory = take_inventory(cloud.provider)
        removal = whole.plan_removal(
            inventory,
            verdict,
            context.owner,
            self._users,
            bucket=cloud.bucket.name,
            is_deleted=self._whole.is_deleted,
        )
        with self._screen.steps() as report:
            changes.down(context, removal.plan, report)
        launch_values.forget(cloud.bucket.name, self._whole.run)
        return Ending(verdict, pulled, tuple(item.name for item in removal.plan.allocations), removal.kept)

    def _users(self, node: Node) -> list[str]:
        """Return the other runs on a node, also those that only its hosts know."""
        context, own = self._context, self._whole.run
        busy = occupants(self._cloud.bucket, context.witnesses, node, context.warn)
        others = [occupant.run for occupant in busy if occupant.run != own]
        return others or context.witnesses.beside(node.id, own)

    def _at(self, phase: Phase, node: str = "", zone: str = "", *, exists: bool = False) -> None:
        position = self._position
        if position.phase is Phase.PLANNING:
            self._screen.begins()
        position.phase = phase
        if node:
            position.node, position.zone, position.has_node, position.is_kept = node, zone, exists, False


class CallScreen:
    """Passes what the steps say on as the progress of a call, and asks nobody."""

    def __init__(self, context: Context, whole: WholeRun, call: Call, output: LogCallback | None) -> None:
        self._context = context
        self._whole = whole
        self._call = call
        self._output = output

    def note(self, text: str) -> None:
        """Pass a sentence on."""
        starting.tell(self._context, self._call, text)

    def steps(self) -> AbstractContextManager[Report]:
        """Return what reports steps."""
        return nullcontext(self._call.line)

    def count(self) -> AbstractContextManager[ReportCode]:
        """Return what reports an amount."""
        return nullcontext(starting.counted(self._call))

    def show_node(self, plan: UpPlan) -> None:
        """Say what would be created."""
        self._call.line(f"creates {plan.options.name}, {creation.price_text(self._context, plan)} per hour")

    def show_run(self, plan: SubmitPlan) -> None:
        """Say what would be sent."""
        self._call.line(f"sends {plan.code.count} files, {plan.code.files_size:,} bytes")

    def admit_node(self, plan: UpPlan) -> None:
        """Say what is created: who calls has decided."""
        if plan.existing is None:
            self.show_node(plan)

    def on_free_node(self, plan: SubmitPlan) -> SubmitPlan:
        """Return the plan for a free node, or to wait in line; raises StateError where it is busy."""
        whole = self._whole
        return busy.on_free_node(self._context, plan, whole.policy, whole.typed, self._call.line, self.steps)

    def follow(self, run: StoredRun) -> Verdict:
        """Pass the lines of the log on until the run ends, and return how it ended."""
        reader = LogReader(run.last_readable_attempt(), None)

        def show(line: Line) -> None:
            if self._output:
                self._output(LogLine(line.worker, moment(line.time), line.text))

        return follow(run, self._context.witnesses, reader, show)

    def begins(self) -> None:
        """Do nothing: who calls has the name."""

    def made(self, kind: str, name: str) -> None:
        """Do nothing: there is no shell to complete names."""


OF_THE_RUN = ("name", "framework", "topology", "detach", "race")
"""Options of a TPU that follow from its run."""


def of_machine(
    context: Context, options: NodeOptions
) -> tuple[Callable[..., UpOptions], tuple[str, ...], float, Lifetime | None]:
    """Return what options say of the TPU of a whole run, as WholeRun has it; raises UsageError."""
    check_options(options, NodeOptions)
    if wrong := [name for name in OF_THE_RUN if name in options]:
        raise UsageError(f"machine has no {wrong[0]}: the run decides that.", hint=f"Leave out {wrong[0]}.")
    names_an_end = bool({"ttl", "idle", "max_cost"} & options.keys())

    def machine(*, accelerator: str, name: str, framework: str) -> UpOptions:
        asked = cast("NodeOptions", {**options, "name": name, "framework": framework})
        return creation.up_options(context, accelerator, asked)

    return (
        machine,
        tuple(options.get("zones", ())),
        seconds(options.get("wait_capacity", 0)),
        creation.lifetime_of(options) if names_an_end else None,
    )


def typed_words(
    words: Sequence[str], name: str, types: Sequence[str] | None, *, is_deleted: bool
) -> tuple[str, ...]:
    """Return the words of the command that does the same, for hints."""
    options = {"--name": name}
    if types is not None:
        options["--up"] = ",".join(types)
    if is_deleted:
        options["--down"] = ""
    return with_options(("run", *words), options)
