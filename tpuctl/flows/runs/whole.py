"""From nothing to results by one command: which step of it is next, which node is its own, what is left.

- Says of a whole run that stops in the middle what goes on, what bills, and which command does what.
- Says which step of a whole run is next, by what the bucket has under its name.
- Starts a run again for who waits for its end: repeats a watcher's step until it goes on.
- Makes the node of a whole run, and says which node may be deleted with its end.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tpuctl import polling
from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    InterruptedByUser,
    NotFoundError,
    StockoutError,
    TpuctlError,
    add_note,
    joined_hints,
)
from tpuctl.flows.nodes import up as creation
from tpuctl.flows.nodes.down import DownPlan
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.nodes.plan import NODE_NAME, UpPlan
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses, sign_of
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.lease import BUSY, WAITS, WatchEvent
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import SubmitRequest, default_name
from tpuctl.masking import masked_arguments
from tpuctl.nodes import (
    CreateNode,
    DeleteNode,
    DeleteQueuedResource,
    HttpRequest,
    Node,
    NodeState,
    joined,
)
from tpuctl.polling import Sleep
from tpuctl.runs import BY_SILENCE, Tpu, Verdict
from tpuctl.shells import again

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


EARLIER = "See what an earlier command has made, which bills: tpuctl ls"


class Phase(StrEnum):
    """What a command is doing; the value says how it stands with the run meanwhile."""

    PLANNING = "is not started"
    CREATING = "is not started yet"
    STARTING = "may have started, and goes on then"
    RUNNING = "goes on"
    RESTARTING = "is to be started again"
    FETCHING = "has ended, and its files are not all here"
    DELETING = "has ended, and its files are here"


@dataclass
class Position:
    """Where one command is on its way."""

    run: str
    typed: tuple[str, ...]
    """The words of the command that continues."""
    phase: Phase = Phase.PLANNING
    node: str = ""
    """The node that the command has requested or uses; empty without one."""
    zone: str = ""
    """Of the node, or those in one of which it may be."""
    has_node: bool = False
    """Whether the node exists for sure."""
    is_kept: bool = False
    """Whether Terraform keeps the node, and nobody is to delete it."""
    is_named: bool = False
    """Whether an earlier command may have begun the run, since the user has named it."""

    @property
    def again(self) -> str:
        """The command that continues."""
        return again(self.typed)

    @property
    def standing(self) -> str:
        """What goes on and what bills, as a sentence."""
        node = ""
        if self.node:
            where = f" in {self.zone}" if self.zone else ""
            node = f", and node '{self.node}'{where} {'bills' if self.has_node else 'may bill'}"
        return f"run '{self.run}' {self.phase}{node}."

    @property
    def may_bill(self) -> list[str]:
        """The node, as errors name it for programs."""
        return [f"{self.node} in {self.zone}" if self.zone else self.node] if self.node else []

    @property
    def commands(self) -> str:
        """The commands to continue, to stop the run, and to delete the node."""
        runs = self.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
        return joined_hints(
            f"Continue: {self.again}",
            f"Stop the run: tpuctl cancel {self.run}" if runs else "",
            f"Delete the node: tpuctl down {self.node}" if self.node and not self.is_kept else "",
        )


def interrupted(position: Position, interrupt: BaseException) -> InterruptedByUser:
    """Return the error of Ctrl-C; where a node may be is in the error of the creation that it interrupted."""
    if position.phase is Phase.PLANNING and position.is_named:
        return InterruptedByUser(
            f"Interrupted; this command has started nothing. What an earlier one has begun for run "
            f"'{position.run}' goes on, and may bill.",
            hint=joined_hints(EARLIER, f"Continue: {position.again}"),
            run=position.run,
        )
    if position.phase is Phase.PLANNING:
        return InterruptedByUser("Interrupted; nothing was started.")
    places = interrupt.facts.get("may_bill") if isinstance(interrupt, InterruptedByUser) else None
    if isinstance(places, list) and not position.zone:
        before = f"{position.node} in "
        position.zone = " or ".join(place.removeprefix(before) for place in places if before in place)
    facts = {"may_bill": position.may_bill} if position.node else {}
    return InterruptedByUser(
        f"Interrupted; {position.standing}", hint=position.commands, run=position.run, **facts
    )


def failed(position: Position, error: Exception) -> Exception:
    """Return an error with what goes on and what bills, where it does not say so itself."""
    is_up_at_it = position.phase is Phase.CREATING and not position.has_node  # then `up` has said what bills
    if position.phase is Phase.PLANNING:
        if position.is_named and isinstance(error, (ConfigError, DeadlineError)):
            error.hint = joined_hints(error.hint, EARLIER)
        return error
    standing = position.standing
    sentence = f"{standing[0].upper()}{standing[1:]}"
    if not isinstance(error, TpuctlError):
        if not is_up_at_it:
            add_note(error, f"{sentence} {position.commands}")
        return error
    error.facts.setdefault("run", position.run)
    if is_up_at_it:
        if "may_bill" in error.facts:
            return error
        if isinstance(error, StockoutError):
            error.hint = joined_hints(
                f"Try again: {position.again}",
                f"Try every zone: {again(position.typed, {'--zone': 'any'})}",
                f"Keep trying: {again(position.typed, {'--wait-capacity': '6h'})}",
            )
        else:
            error.hint = joined_hints(error.hint, f"Try again: {position.again}")
        return error
    if "may_bill" not in error.facts:
        error.message = f"{error.message} {sentence}"
        if position.node:
            error.facts["may_bill"] = position.may_bill
    error.hint = joined_hints(error.hint, position.commands)
    return error


@dataclass(frozen=True)
class Stage:
    """How far a run has come."""

    verdict: Verdict | None = None
    """How it ended, if it has."""
    tpu: Tpu | None = None
    """The node of its last attempt; None before the first."""
    attempt: int = 0
    """The number of that attempt."""
    is_launched: bool = False
    """Whether every worker has said something: nothing is left to be started."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and no other attempt is to follow."""
        return self.verdict is not None and not self.verdict.restarts

    @property
    def is_restarted(self) -> bool:
        """Whether it is to be started again, or was."""
        return self.attempt > 1 or (self.verdict is not None and self.verdict.restarts)


def look(run: StoredRun, witnesses: Witnesses) -> Stage:
    """Return how far a run has come; an attempt that has ended before it had started counts as none.

    Raises BadObjectError where its records cannot be read, RecordMissingError where it works without them.
    """
    verdict = run.verdict()
    if not run.attempt_numbers():
        sign = sign_of(run.bucket, run.name)
        if sign:
            raise RecordMissingError(sign)
        return Stage(verdict)
    state = settle(run, witnesses)
    if state.error:
        raise state.error
    if state.verdict and state.verdict.is_unstarted:
        return Stage()
    attempt = run.last_readable_attempt()
    is_launched = None not in attempt.statuses()
    return Stage(state.verdict, attempt.record.tpu, attempt.number, is_launched)


def require_same(run: StoredRun, request: SubmitRequest) -> None:
    """Raise ConflictError for a run of this name that has another script or other arguments."""
    try:
        record = run.record
    except NotFoundError:
        return
    arguments = masked_arguments(request.arguments).arguments
    names = [PurePosixPath(str(script)).name for script in (record.script, request.script)]
    if names[0] != names[1] or record.arguments != arguments:
        raise ConflictError(
            f"There is a run '{run.name}' already, of {record.script} or with other arguments.",
            hint="Choose another --name, or none.",
        )


def new_name(request: SubmitRequest, at: datetime) -> str:
    """Return a name for a run that nobody else chooses at the same second, also for the same script."""
    return f"{default_name(request, at)}-{secrets.token_hex(2)}"


def node_name(run: str) -> str:
    """Return the name of the node that is made for a run: always the same, so that it is found again."""
    if NODE_NAME.fullmatch(run):
        return run
    return f"run-{run.rstrip('-')[:59]}"


def await_restart(
    run: StoredRun, tools: Tools, sleep: Sleep = polling.sleep, *, patience: float = math.inf
) -> None:
    """Return once a run goes on, was started again, or has ended for good; reports each event once.

    Waits for capacity, for services that do not answer, and for another watcher. Raises what another step
    would only repeat, such as UsageError for a value that nobody here knows; DeadlineError after `patience`
    seconds of pauses.
    """
    pauses, shown, waited = watch.PAUSES.pauses(), "", 0.0
    while True:
        event = _step(run, tools)
        if event.line != shown and (shown or event.action in (BUSY, WAITS)):
            tools.report(event.line)
        shown = event.line
        if event.action not in (BUSY, WAITS):
            return
        pause = watch.INTERVAL if event.action == BUSY else next(pauses)
        if waited + pause > patience:
            raise DeadlineError(event.detail)
        sleep(pause)
        waited += pause


def _step(run: StoredRun, tools: Tools) -> WatchEvent:
    try:
        return step(run, tools)
    except (*watch.FINAL, NotFoundError, InterruptedByUser):
        raise
    except TpuctlError as error:
        return WatchEvent(run.name, max(run.attempt_numbers(), default=0), WAITS, error.message)


@dataclass(frozen=True)
class Removal:
    """What is deleted after a run, and what stays."""

    plan: DownPlan
    kept: str = ""
    """Why its node stays, as a sentence; empty for nothing that stays."""


NOTHING_TO_DELETE = DownPlan(())


def planned_node(plan: UpPlan) -> Node:
    """Return the node that a plan creates first, as far as it is known before it exists."""
    request, slices = plan.request, plan.options.slices
    node = Node(
        id=request.id, state=NodeState.CREATING, provider_state="", accelerator=request.accelerator,
        runtime=request.runtime, created="", spot=request.spot, addresses=("",) * (plan.hosts or 1),
        multislice=slices > 1,
    )  # fmt: skip
    if slices == 1:
        return node
    names = [f"{node.name}-{number}" for number in range(slices)]
    return joined(node.name, [replace(node, id=replace(node.id, name=name)) for name in names])


def node_of(plan: UpPlan) -> Node:
    """Return the node that a plan uses, or what it will be."""
    existing = plan.existing
    return existing.whole if existing and existing.nodes else planned_node(plan)


def acquire(provider: Provider, ssh: Ssh, plans: Sequence[UpPlan], report: Report) -> Allocation:
    """Return the node of the first plan for which there is capacity; raises what `up` raises for the last."""
    for plan in plans[:-1]:
        try:
            return creation.up(provider, ssh, plan, report)
        except StockoutError as error:
            report(error.message)
    return creation.up(provider, ssh, plans[-1], report)


def deletion_requests(provider: Provider, plan: UpPlan) -> list[HttpRequest]:
    """Return the request that deletes what a plan creates, for --dry-run."""
    first = plan.creation
    if isinstance(first, CreateNode):
        return [provider.http_request(DeleteNode(first.request.id))]
    return [provider.http_request(DeleteQueuedResource(first.request.id))]


def own_nodes(inventory: Inventory, run: str, owner: str, bucket: str) -> tuple[Allocation, ...]:
    """Return what was made for a run, preempted or waiting included; one that its user had before was not."""
    items = (item for item in inventory.allocations if item.is_owned_by(owner))
    return tuple(item for item in items if item.is_made_for(run, bucket))


def plan_removal(
    inventory: Inventory, verdict: Verdict, owner: str, users: Users, *, bucket: str, is_deleted: bool
) -> Removal:
    """Return what may be deleted now that a run has ended: its own node, if nobody else uses it.

    A zone that does not answer and may hold it counts: `down` raises DeadlineError then.
    """
    tpu, own = verdict.tpu, own_nodes(inventory, verdict.run, owner, bucket)
    left = own or tuple(
        item for item in inventory.allocations if tpu and tpu.uid in [node.id.uid for node in item.nodes]
    )
    if not left:
        silent = [zone for zone in inventory.unreachable if tpu is None or zone == tpu.zone]
        return Removal(DownPlan((), tuple(silent) if is_deleted else ()))
    standings = " ".join(map(_standing, left))
    if not is_deleted:
        return Removal(NOTHING_TO_DELETE, standings)
    reason = _reason_to_stay(left, verdict, users, is_own=bool(own))
    return Removal(NOTHING_TO_DELETE, f"{reason} {standings}") if reason else Removal(DownPlan(own))


Users = Callable[[Node], Sequence[str]]
"""Returns the other runs that have not ended on a node."""


def _reason_to_stay(left: Sequence[Allocation], verdict: Verdict, users: Users, *, is_own: bool) -> str:
    """Return why a node must not be deleted, as a sentence; empty for one that may be."""
    if not is_own:
        return f"{left[0].name} was not made for this run."
    if verdict.basis == BY_SILENCE:
        return f"Nobody knows whether the script still runs on {left[0].name}."
    ready = (node for item in left for node in item.nodes if node.state is NodeState.READY)
    others = next((runs for runs in map(users, ready) if runs), ())
    return f"Run '{others[0]}' uses it." if others else ""


def _standing(item: Allocation) -> str:
    if item.is_over:
        return f"What is left of {item.name} is deleted by '{item.deletion}'."
    if item.is_kept_by_terraform:
        return f"{item.name} goes on billing: Terraform keeps it."
    return f"{item.name} goes on billing until '{item.deletion}'."
