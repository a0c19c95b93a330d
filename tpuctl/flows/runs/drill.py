"""Rehearses what a provider may do to a node at any time, and tells what its runs did then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, InterruptedByUser, StateError, TpuctlError, UsageError
from tpuctl.flows.nodes.lookup import find_ready, node_state
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.checkpoints.readers import last_committed
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import started_on
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import HttpRequest, Maintenance, Node, NodeState, SimulateMaintenance
from tpuctl.parallel import fanout
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

TIMEOUT = 900.0
REACTION_TIMEOUT = 180.0
"""Seconds for a run to send a heartbeat or to end: longer than it takes to call a run lost."""
MOST_RUNS = 200
"""Runs of a node, from the newest, that are looked at."""
NOBODY = "-"
"""Names the owner of a node that nobody owns, as in the table of `ls`."""


@dataclass(frozen=True)
class DrillPlan:
    """The node, the change that plays a maintenance, and the runs that live through it."""

    node: Node
    change: SimulateMaintenance | None
    """None for a preemption, which only the simulator can play."""
    runs: tuple[StoredRun, ...]


@dataclass(frozen=True)
class Moment:
    """Something that was observed."""

    at: str
    """ISO-8601, UTC, by this machine's clock."""
    event: str


@dataclass(frozen=True)
class Reaction:
    """What one run did."""

    run: str
    before: str
    """Its state, as `runs` shows it."""
    after: str
    evidence: str
    """Why it is in its state."""
    checkpoint_before: str
    """The last committed one; empty for none."""
    checkpoint_after: str


@dataclass(frozen=True)
class DrillReport:
    """What happened to a node, and what its runs did."""

    node: str
    zone: str
    state: str
    """The node's, at the end."""
    maintenance: Maintenance | None
    """The announcement that the provider shows, if any."""
    moments: tuple[Moment, ...]
    runs: tuple[Reaction, ...]


def plan_drill(
    provider: Provider, bucket: Bucket | None, name: str, owner: str, *, zone: str | None = None,
    whose: str = "", worker: int | None = 0,
) -> DrillPlan:  # fmt: skip
    """Return what a drill does; sends reads only. `worker` is None for a preemption.

    Raises StateError for a node that is not READY, or that is another's than `owner`'s unless `whose` says
    whose; UsageError for a worker that it does not have.
    """
    node = find_ready(provider, name, None, owner, zone)
    if not node.is_owned_by(owner) and whose not in (node.owner or NOBODY,):
        raise StateError(
            f"Node '{name}' is not yours, and a drill can end what runs on it.",
            hint="Say whose it is with --owner OWNER; 'tpuctl ls --all-users' shows that.",
        )
    if worker is None:
        return DrillPlan(node, None, _runs_on(bucket, node))
    if not 0 <= worker < len(node.addresses):
        raise UsageError(
            f"Node '{name}' has no worker {worker}.", hint=f"It has {len(node.addresses)}, from 0."
        )
    return DrillPlan(node, SimulateMaintenance(node.id, worker), _runs_on(bucket, node))


def requests(provider: Provider, plan: DrillPlan) -> list[HttpRequest]:
    """Return the requests to the provider by which a drill changes something, for --dry-run."""
    return [provider.http_request(plan.change)] if plan.change else []


def drill(
    provider: Provider,
    plan: DrillPlan,
    preempt: Callable[[], None],
    now: Callable[[], datetime],
    report: Report,
) -> DrillReport:
    """Carry the drill out, and return once the node and every run on it have reacted.

    `preempt` plays the preemption, where that is planned, and `now` tells the time. Raises DeadlineError when
    the node does not change, and InterruptedByUser on Ctrl-C: what was begun goes on.
    """
    try:
        return _Drill(provider, plan, now, report).run(preempt)
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted: the drill of '{plan.node.name}' goes on.",
            hint="'tpuctl ls' and 'tpuctl runs' show what it does.",
        ) from error


class _Drill:
    """One drill: its observations in order."""

    def __init__(
        self, provider: Provider, plan: DrillPlan, now: Callable[[], datetime], report: Report
    ) -> None:
        self._provider = provider
        self._witnesses = Witnesses(provider)
        self._plan = plan
        self._now = now
        self._report = report
        self._moments: list[Moment] = []
        self._state: NodeState | None = None

    def run(self, preempt: Callable[[], None]) -> DrillReport:
        node = self._plan.node
        before = [self._settle(run) for run in self._plan.runs]
        checkpoints = [_checkpoint(run) for run in self._plan.runs]
        self._note_state()
        if self._plan.change:
            self._note(f"simulating a maintenance of worker {self._plan.change.worker}")
            self._provider.begin(self._plan.change).wait("to have its maintenance simulated", TIMEOUT)
        else:
            self._note(f"preempting {node.name}")
            preempt()
        self._await_node()
        maintenance = self._announced()
        after = self._await_runs(before)
        state = self._note_state()
        reactions = [
            _reaction(run, *states, checkpoint)
            for run, states, checkpoint in zip(
                self._plan.runs, zip(before, after, strict=True), checkpoints, strict=True
            )
        ]
        return DrillReport(node.name, node.zone, state, maintenance, tuple(self._moments), tuple(reactions))

    def _await_node(self) -> None:
        """Return once the node is lost, or READY again after what was only a maintenance."""
        ends = (NodeState.READY,) if self._plan.change else ()
        poll(
            lambda: self._note_state() in (*ends, NodeState.PREEMPTED, NodeState.GONE) or None,
            awaiting=f"node '{self._plan.node.name}' to come to rest",
            timeout=TIMEOUT,
            hint="See 'tpuctl ls'.",
        )

    def _announced(self) -> Maintenance | None:
        if self._plan.change is None:
            return None
        announced = self._provider.maintenance(self._plan.node.zone).get(self._plan.node.id.uid)
        if announced:
            self._note(f"{announced.kind} maintenance is {announced.status}, from {announced.begins}")
        return announced

    def _await_runs(self, before: Sequence[RunState]) -> list[RunState]:
        """Return the states of the runs once each has ended or sent a heartbeat, or after the time limit."""
        states = list(before)

        def all_reacted() -> bool | None:
            self._note_state()
            for number, run in enumerate(self._plan.runs):
                if not _has_reacted(before[number], states[number]):
                    states[number] = self._settle(run)
            return all(map(_has_reacted, before, states)) or None

        if self._plan.runs:
            names = ", ".join(run.name for run in self._plan.runs)
            self._report(f"waiting for what {names} does")
        try:
            poll(all_reacted, awaiting="the runs to react", timeout=REACTION_TIMEOUT)
        except DeadlineError as error:
            self._note(error.message)
        return states

    def _settle(self, run: StoredRun) -> RunState:
        return settle(run, self._witnesses)

    def _note_state(self) -> NodeState:
        state = node_state(self._provider, self._plan.node.id)
        if state is not self._state:
            self._note(f"{self._plan.node.name} is {state}")
            self._state = state
        return state

    def _note(self, event: str) -> None:
        self._moments.append(Moment(clock.iso(self._now()), event))
        self._report(event)


def _runs_on(bucket: Bucket | None, node: Node) -> tuple[StoredRun, ...]:
    """Return the runs that have a node and no verdict yet; none without a bucket."""

    def is_on_node(run: StoredRun) -> bool:
        try:
            return run.last_attempt().record.tpu.id == node.id and run.verdict() is None
        except TpuctlError:  # not a record, or deleted meanwhile: `runs` says which
            return False

    if bucket is None:
        return ()
    names = dict.fromkeys(item.run for item in started_on(bucket, NodePaths.of(node.id)))
    newest = [StoredRun(bucket, name) for name in islice(names, MOST_RUNS)][::-1]
    return tuple(result.item for result in fanout(is_on_node, newest) if result.value)


def _has_reacted(before: RunState, after: RunState) -> bool:
    if after.verdict or after.error:
        return True
    pairs = zip(before.statuses, after.statuses, strict=True)
    return all(new and (new.is_finished or new != old) for old, new in pairs)


def _reaction(run: StoredRun, before: RunState, after: RunState, checkpoint: str) -> Reaction:
    if after.verdict:
        evidence = after.verdict.evidence
    elif after.error:
        evidence = after.error.message
    elif _has_reacted(before, after):
        evidence = "every worker has sent a heartbeat since"
    else:
        evidence = "not every worker has sent a heartbeat since"
    return Reaction(run.name, before.label, after.label, evidence, checkpoint, _checkpoint(run))


def _checkpoint(run: StoredRun) -> str:
    return last_committed(run.bucket, run.paths.checkpoints)
