"""Does the steps of a whole run, each unless it is whole already: up, submit, logs, pull, down."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tpuctl.cli import output
from tpuctl.cli.nodes.creation_options import Machine, warn_of_secrets
from tpuctl.cli.nodes.up import ask, show_plan
from tpuctl.cli.nodes.zone_options import search_of
from tpuctl.cli.progress import show_late_count, show_steps
from tpuctl.cli.runs.busy import Policy, on_free_node
from tpuctl.cli.runs.logs import follow_to_end
from tpuctl.cli.runs.pull import left_out
from tpuctl.cli.runs.watch import tools
from tpuctl.cli.session import Session
from tpuctl.errors import DeclinedError, InterruptedByUser, NotFoundError, TpuctlError, UsageError
from tpuctl.flows.nodes import down
from tpuctl.flows.nodes import up as creation
from tpuctl.flows.nodes.expiry import require_time_left
from tpuctl.flows.nodes.inventory import take_inventory
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.plan import UpPlan, plan_up
from tpuctl.flows.progress import Report
from tpuctl.flows.runs import consequences
from tpuctl.flows.runs import pull as results
from tpuctl.flows.runs.control.occupants import occupants
from tpuctl.flows.runs.recovery import rehearsal
from tpuctl.flows.runs.recovery.machine import machine_name
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values, submit
from tpuctl.flows.runs.submission.continuation import go_on
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest, on_node, plan_submit, read_header
from tpuctl.flows.runs.whole import machine
from tpuctl.flows.runs.whole.endings import Phase, Position, failed, interrupted
from tpuctl.flows.runs.whole.restart import await_restart
from tpuctl.flows.runs.whole.stage import Stage, look, node_name, require_same
from tpuctl.nodes import HttpRequest, Node
from tpuctl.runs import Tpu, Verdict


@dataclass(frozen=True)
class WholeRun:
    """What the user asks `run` for."""

    run: str
    request: SubmitRequest
    again: str
    """The command that continues."""
    folder: Path
    """Where its files go."""
    types: Sequence[str] | None
    """Accelerator types of the node to make, in order; none for those of the header. None for no node."""
    machine: Machine
    zones: tuple[str, ...]
    wait: int
    lifetime: Lifetime
    is_deleted: bool
    """Whether the node is deleted at the end."""
    policy: Policy
    yes: bool


class Steps:
    """One command on its way."""

    def __init__(self, session: Session, whole: WholeRun) -> None:
        self._session = session
        self._whole = whole
        self._cloud = session.cloud
        self._request = replace(whole.request, name=whole.run)
        self._stored = StoredRun(self._cloud.bucket, whole.run, session.warn)
        self._position = Position(whole.run, whole.again)
        self._deleted: list[str] = []
        self._kept = ""
        """Why the node stays, as a sentence."""

    def show_plan(self) -> None:
        """Show what the steps that are not whole would change, and what it costs; sends reads only."""
        stage = self._look()
        requests = list[HttpRequest]()
        if stage.tpu is None and not stage.verdict:
            requests = self._first_requests()
        elif stage.verdict and not stage.is_over:
            with show_steps() as report:
                requests = rehearsal.requests(self._stored, self._watch_tools(report))
        elif self._whole.is_deleted:
            requests = self._removal_requests()
        output.requests(requests, as_json=self._session.as_json)

    def _first_requests(self) -> list[HttpRequest]:
        provider = self._cloud.provider
        if self._whole.types is None:
            plan = self._planned(None)
            return submit.requests(self._cloud.bucket, plan)
        ups = self._up_plans()
        first = ups[0]
        node = machine.planned_node(first) if first.existing is None else _ready(first)
        plan = self._planned(node)
        if first.existing is None:
            show_plan(self._session, first, self._facts())
        requests = [*creation.requests(provider, first), *submit.requests(self._cloud.bucket, plan)]
        if self._whole.is_deleted and first.existing is None:
            requests += machine.deletion_requests(provider, first)
        elif self._whole.is_deleted:
            requests += self._removal_requests()
        return requests

    def _removal_requests(self) -> list[HttpRequest]:
        inventory = take_inventory(self._cloud.provider)
        own = machine.own_nodes(inventory, self._whole.run, self._session.owner)
        return down.requests(self._cloud.provider, down.DownPlan(own))

    def go(self) -> None:
        """Do what is left to do; the error that is raised at the end is that of the run's outcome."""
        try:
            verdict = self._verdict()
            pulled = self._pull()
            self._remove(verdict)
        except (KeyboardInterrupt, InterruptedByUser) as interrupt:
            raise interrupted(self._position) from interrupt
        except DeclinedError:
            raise
        except TpuctlError as error:
            raise failed(self._position, error) from error
        self._show_end(verdict, pulled)

    def _look(self) -> Stage:
        require_same(self._stored, self._request)
        return look(self._stored, self._session.witnesses)

    def _verdict(self) -> Verdict:
        """Return how the run ended: at once where it has, else after all that is missing."""
        results.check_folder(self._whole.folder, self._whole.run)
        stage = self._look()
        if stage.tpu:
            self._at(Phase.STARTING, stage.tpu.name, exists=True)
        if stage.verdict and stage.is_over:
            output.note(f"Run '{self._whole.run}' has ended: {stage.verdict.evidence}.")
            return stage.verdict
        if stage.is_restarted:
            self._restart()
        elif not stage.is_launched:
            failure = self._start(stage.tpu)
            if failure:
                return failure
        return self._followed()

    def _followed(self) -> Verdict:
        """Return how the run ended once no other attempt is to follow; starts it again where one is."""
        while True:
            self._at(Phase.RUNNING)
            verdict = follow_to_end(self._session, self._stored)
            if not verdict.restarts:
                return verdict
            output.note(
                f"Run '{verdict.run}' was {verdict.outcome}: {verdict.evidence}. It is started again."
            )
            self._restart()

    def _restart(self) -> None:
        """Start the run again, as 'tpuctl watch' does; returns at once where it goes on."""
        run = self._whole.run
        self._at(Phase.RESTARTING, machine_name(run, max(self._stored.attempt_numbers()) + 1))
        with show_steps() as report:
            await_restart(self._stored, self._watch_tools(report))
        self._at(Phase.RUNNING, self._stored.last_readable_attempt().record.tpu.name, exists=True)

    def _watch_tools(self, report: Report) -> Tools:
        return tools(self._session, report, dict(self._request.environment))

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
            plan = self._on_own_node(self._up_plans())
        else:
            plan = self._planned(None)
        if not tpu:
            plan = on_free_node(self._session, plan, self._whole.policy, self._request.script, "run")
        self._at(Phase.STARTING, plan.node.name, exists=True)
        try:
            with show_late_count() as report:
                submission = go_on(self._cloud.bucket, self._cloud.provider, self._cloud.ssh, plan, report)
        except TpuctlError as error:
            verdict = self._stored.verdict()
            if verdict is None:
                raise
            output.note(error.message)
            return verdict
        self._session.listed.add("runs", self._whole.run)
        for text in submission.notes:
            output.note(text)
        return None

    def _planned(self, node: Node | None) -> SubmitPlan:
        cloud, session = self._cloud, self._session
        with show_late_count() as report:
            plan = plan_submit(
                cloud.data_bucket, cloud.provider, session.owner, self._request, session.now, report, node
            )
        for text in plan.notes:
            output.note(text)
        return plan

    def _on_own_node(self, ups: Sequence[UpPlan]) -> SubmitPlan:
        """Return the plan on the node that is made, or is there; what can refuse it is read first."""
        first, cloud = ups[0], self._cloud
        if first.stopped:
            require_time_left(first.stopped, cloud.server_time)
        plan = self._planned(machine.planned_node(first))
        for other in ups[1:]:
            output.note(f"Without capacity: {other.request.accelerator} instead.")
        ask(self._session, first, yes=self._whole.yes, more=self._facts(), question=self._question(first))
        self._at(Phase.CREATING, first.options.name)
        with show_steps() as report:
            allocation = machine.acquire(cloud.provider, cloud.ssh, ups, report)
        self._session.listed.add("nodes", allocation.name)
        return on_node(plan, allocation.nodes[0], cloud.data_bucket)

    def _up_plans(self) -> list[UpPlan]:
        """Return a plan for each type, in order; for a node that exists, that of its type alone."""
        session, whole, provider = self._session, self._whole, self._cloud.provider
        header = read_header(self._request.script).tpuctl
        name = node_name(whole.run)
        types = whole.types or header.accelerators or [session.config.get("accelerator") or ""]
        if not types[0]:
            raise UsageError(
                "There is no TPU type.", hint="Name one: --up v3-8, or accelerator in the header."
            )
        plans, key = list[UpPlan](), self._cloud.ssh.login_key()
        for accelerator in self._existing(name, types) or types:
            options = whole.machine(accelerator=accelerator, name=name, framework=header.framework)
            whole.lifetime.check(slices=1, scopes=options.scopes)
            options = replace(
                options, lifetime=whole.lifetime, bucket=session.config.get("bucket"), run=whole.run,
                typed=tuple(shlex.split(whole.again)[1:]),
            )  # fmt: skip
            search = search_of(session, options.type, whole.zones, race=False, wait=whole.wait, detach=False)
            plans.append(plan_up(provider, key, options, search))
        warn_of_secrets(plans[0].options)
        return plans

    def _existing(self, name: str, types: Sequence[str]) -> list[str]:
        """Return the type of the node that an earlier command has made, if it is one of several."""
        if len(types) == 1:
            return []
        listed = take_inventory(self._cloud.provider).nodes
        return [node.accelerator for node in listed if node.name == name and node.accelerator in types][:1]

    def _facts(self) -> Mapping[str, str]:
        end = "is deleted" if self._whole.is_deleted else "stays, and bills, until 'tpuctl down'"
        return {
            "run": f"{self._whole.run}: {self._request.script}",
            "results": str(self._whole.folder),
            "afterwards": f"the TPU {end}",
        }

    def _question(self, plan: UpPlan) -> str:
        end = ", and delete it afterwards" if self._whole.is_deleted else ""
        return f"Create {plan.options.name}, run {self._request.script} there{end}?"

    def _pull(self) -> results.PullResult:
        """Fetch the run's files; raises StateError if some cannot be written to this disk."""
        self._at(Phase.FETCHING)
        with show_steps() as report:
            pulled = results.pull(self._stored, self._whole.folder, report)
        for refusal in pulled.refused:
            self._session.warn(f"{refusal.name} {refusal.reason}: it is left out.")
        if pulled.refused:
            raise left_out(self._stored, pulled.refused, {})
        return pulled

    def _remove(self, verdict: Verdict) -> None:
        """Delete the run's own node, or find out what stays."""
        cloud, session = self._cloud, self._session
        self._at(Phase.DELETING)
        inventory = take_inventory(cloud.provider)
        removal = machine.plan_removal(
            inventory, verdict, session.owner, self._users, is_deleted=self._whole.is_deleted
        )
        self._kept = removal.kept
        with show_steps() as report:
            down.down(cloud.provider, removal.plan, report)
        self._deleted = [item.name for item in removal.plan.allocations]
        launch_values.forget(cloud.bucket.name, self._whole.run)
        session.listed.remove("nodes", self._deleted)

    def _users(self, node: Node) -> list[str]:
        """Return the other runs on a node."""
        session = self._session
        busy = occupants(self._cloud.bucket, session.witnesses, node, session.warn)
        return [occupant.run for occupant in busy if occupant.run != self._whole.run]

    def _at(self, phase: Phase, node: str = "", *, exists: bool = False) -> None:
        position = self._position
        position.phase = phase
        if node:
            position.node, position.has_node = node, exists

    def _show_end(self, verdict: Verdict, pulled: results.PullResult) -> None:
        """Say how it ended, what is here, and what bills; raises the error of a run that did not succeed."""
        if self._session.as_json:
            output.json_line({
                "run": verdict.run, "outcome": verdict.outcome, "evidence": verdict.evidence,
                "exit_code": verdict.exit_code, "folder": str(pulled.folder), "files": pulled.files,
                "bytes": pulled.size, "uncommitted": list(pulled.uncommitted), "deleted": self._deleted,
                "kept": self._kept,
            })  # fmt: skip
        else:
            self._show_files(pulled)
        error = consequences.error_of(verdict)
        if error:
            raise error
        output.note(f"Run '{verdict.run}' {verdict.outcome}.")

    def _show_files(self, pulled: results.PullResult) -> None:
        content: dict[str, object] = {
            "files": f"{pulled.files} ({output.format_bytes(pulled.size)}), verified",
            "where": pulled.folder,
        }
        if pulled.uncommitted:
            content["skipped"] = f"{len(pulled.uncommitted)} files of unfinished checkpoints"
        output.facts(content, err=True)
        if self._deleted:
            output.note(f"Deleted {', '.join(self._deleted)}.")
        if self._kept:
            output.note(self._kept)


def _ready(plan: UpPlan) -> Node:
    """Return the node that exists, or what it will be."""
    assert plan.existing
    return plan.existing.nodes[0] if plan.existing.nodes else machine.planned_node(plan)
