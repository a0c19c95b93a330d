"""Drills: a maintenance of a TPU, or the loss of the TPU of a run, which is restarted, and what that cost.

Times are the bucket's: of the objects that the run's workers and watchers write.

- Shows the requests by which the next step of a watcher would change something, for --dry-run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl import clock, polling, runs
from tpuctl.catalogue.prices import Price
from tpuctl.cloud.provider import Provider
from tpuctl.errors import InterruptedByUser, StateError, UsageError
from tpuctl.flows.nodes import down, up
from tpuctl.flows.nodes.lookup import find_ready, node_state
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs import state
from tpuctl.flows.runs.attempt_costs import PriceOf, cost
from tpuctl.flows.runs.checkpoints import last_committed
from tpuctl.flows.runs.control.occupants import occupants
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.authority import machine_of, own_node
from tpuctl.flows.runs.recovery.machine import left_items, plan_machine
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.state import first_step, steps_lost
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.resumption import obstacle
from tpuctl.host.worker.records import FINISHED, RUNNING
from tpuctl.nodes import HttpRequest, Maintenance, Node, NodeId, NodeState, SimulateMaintenance
from tpuctl.polling import Backoff, Sleep, poll
from tpuctl.recovery import Lease
from tpuctl.runs import Tpu, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


def requests(run: StoredRun, tools: Tools) -> list[HttpRequest]:
    """Return what a step would send for a run; nothing for one that goes on or has ended for good.

    A run whose end nobody has written yet goes on. Raises as a search for capacity does.
    """
    verdict, machine = run.verdict(), run.record.machine
    if verdict is None or machine is None or not verdict.restarts or run.stop_request():
        return []
    number, before = verdict.attempt + 1, run.attempt(verdict.attempt).record.tpu
    rehearsal = StoredRun(run.bucket.dry_run(), run.name)
    lease = Lease(run.name, number, "TOKEN", tools.holder, leases.SECONDS)
    rehearsal.bucket.create(run.paths.lease(number), runs.encode(lease))
    rehearsal.keep_verdict(verdict)
    shown = list(rehearsal.bucket.requests)  # type: ignore[attr-defined]  # a DryRunBucket
    is_bad = state.needs_other_machine([*run.earlier_verdicts(verdict.attempt), verdict])
    recipe = machine_of(run.bucket.name, run.record, tools.limits)
    name, node = before.name, own_node(tools.provider, run.bucket, run.record, before)
    if is_bad or node is None or node.state is not NodeState.READY:
        left, _ = left_items(tools, run, machine.owner, before)
        shown += down.requests(tools.provider, down.DownPlan(left))
        plan = plan_machine(tools, run.name, recipe, number)
        shown += up.requests(tools.provider, plan)
        name = plan.options.name
    return [*shown, HttpRequest("SSH", name, f"start {run.record.script} as attempt {number}")]


MAINTENANCE_TIMEOUT = 900.0
"""Seconds for a TPU to be READY again, or lost, after a simulated maintenance."""
NOBODY = "-"
"""Names the owner of a node that nobody owns, as in the table of `ls`."""


@dataclass(frozen=True)
class MaintenancePlan:
    """The node, the simulated maintenance, and the runs that live through it."""

    node: Node
    change: SimulateMaintenance
    runs: tuple[StoredRun, ...]


@dataclass(frozen=True)
class RunAfter:
    """The state of a run after a maintenance of its node, as `runs` shows it, and why it is in it."""

    run: str
    state: str
    evidence: str


@dataclass(frozen=True)
class MaintenanceReport:
    """What became of a node and its runs."""

    node: str
    zone: str
    state: str
    maintenance: Maintenance | None
    """The announcement that the provider shows, if any."""
    runs: tuple[RunAfter, ...]


def plan_maintenance(
    provider: Provider, bucket: Bucket | None, name: str, owner: str, *, zone: str | None = None,
    whose: str = "", worker: int = 0,
) -> MaintenancePlan:  # fmt: skip
    """Return what a drill of a TPU does; sends reads only.

    Raises StateError for a node that is not READY, or that is another's than `owner`'s unless `whose` says
    whose; UsageError for a worker that it does not have.
    """
    node = find_ready(provider, name, None, owner, zone)
    if not node.is_owned_by(owner) and whose not in (node.owner or NOBODY,):
        raise StateError(
            f"Node '{name}' is not yours, and a drill can end what runs on it.",
            hint="Say whose it is with --owner OWNER; 'tpuctl ls --all-users' shows that.",
        )
    if not 0 <= worker < len(node.addresses):
        raise UsageError(
            f"Node '{name}' has no worker {worker}.", hint=f"It has {len(node.addresses)}, from 0."
        )
    found = occupants(bucket, Witnesses(provider), node, silent) if bucket else []
    runs = tuple(StoredRun(bucket, each.run) for each in found) if bucket else ()
    return MaintenancePlan(node, SimulateMaintenance(*node.id.host(worker)), runs)


def simulate_maintenance(provider: Provider, plan: MaintenancePlan, report: Report) -> MaintenanceReport:
    """Have the provider simulate the maintenance, and return once the node is READY again, or lost.

    Raises DeadlineError when it does not come to rest, and InterruptedByUser on Ctrl-C: what was begun
    goes on.
    """
    node = plan.node
    rests = (NodeState.READY, NodeState.PREEMPTED, NodeState.GONE)
    report(f"simulating a maintenance of worker {plan.change.worker} of {node.name}")
    try:
        provider.begin(plan.change).wait("to have its maintenance simulated", MAINTENANCE_TIMEOUT)
        state = poll(
            lambda: each if (each := node_state(provider, node.id)) in rests else None,
            awaiting=f"node '{node.name}' to come to rest",
            timeout=MAINTENANCE_TIMEOUT,
            hint="See 'tpuctl ls'.",
        )
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted: the drill of '{node.name}' goes on.",
            hint="'tpuctl ls' and 'tpuctl runs' show what it does.",
        ) from error
    report(f"{node.name} is {state}")
    announced = provider.maintenance(node.zone).get(plan.change.node.uid)
    states = [(run.name, settle(run, Witnesses(provider))) for run in plan.runs]
    after = (RunAfter(name, each.label, each.reason) for name, each in states)
    return MaintenanceReport(node.name, node.zone, state, announced, tuple(after))


# The drill of a run.

PREEMPTION, REBOOT = "preemption", "reboot"
PAUSES = Backoff(first=0.5, longest=5.0)
LONGEST = 1800.0
"""Seconds for the run to end, to be restarted, and to tell its next step."""


@dataclass(frozen=True)
class RunDrillPlan:
    """The run, what befalls its TPU, and its attempt that runs now."""

    run: StoredRun
    kind: str
    attempt: int
    tpu: Tpu
    checkpoint: str
    """The last committed one; empty for none."""

    @property
    def node(self) -> NodeId:
        """The TPU."""
        return self.tpu.id.parts[0]


@dataclass(frozen=True)
class RunDrillReport:
    """What the loss has cost the run."""

    run: str
    kind: str
    begun: str
    """When it was asked for; all times are ISO-8601, UTC."""
    ended: str
    """When the attempt had ended."""
    outcome: str
    evidence: str
    saved: str
    """The checkpoint that was committed after the notice; empty for none."""
    resumed_from: str
    """The checkpoint that the next attempt found; empty for none, or where it is not known."""
    steps_lost: int | None
    attempt: int
    """The next one."""
    node: str
    zone: str
    restarted: str
    """When the next attempt was recorded."""
    next_step: str
    """When its log told its first step; empty for one that ended without."""
    seconds_without_steps: float | None
    """From `begun` to `next_step`."""
    cost: Price
    """Of the TPU for so long: its price for time in which it made no progress."""


def plan(run: StoredRun, tools: Tools, kind: str, owner: str) -> RunDrillPlan:
    """Return what a drill of a run does; sends reads only, and settles a run that has ended.

    Raises StateError for a run that is not running, is another's than `owner`'s, or would not be restarted.
    """
    state, name = settle(run, tools.witnesses), run.name
    if state.verdict or state.label != RUNNING:
        raise StateError(
            f"Run '{name}' is {state.label}: a drill is for a run whose script runs.",
            hint=f"tpuctl describe {name}",
        )
    if run.record.machine is None or run.record.restarts.after_loss == 0:
        raise StateError(
            f"Run '{name}' has no restarts: a drill would end it.",
            hint="Submit it with --restarts 3, for instance; or drill its TPU: tpuctl drill TPU",
        )
    if run.record.machine.owner != owner:
        raise StateError(
            f"Run '{name}' is not yours.", hint="Its owner can drill it: 'tpuctl describe' says who."
        )
    reason = obstacle(run.record) if kind == REBOOT else ""
    if reason:
        raise StateError(
            f"The hosts of run '{name}' do not resume it after a reboot: {reason}.",
            hint=f"Leave --reboot out, or watch it meanwhile: tpuctl watch {name}",
        )
    attempt = run.last_attempt()
    return RunDrillPlan(
        run, kind, attempt.number, attempt.record.tpu, last_committed(run.bucket, run.paths.checkpoints)
    )


def drill(
    planned: RunDrillPlan,
    tools: Tools,
    strike: Callable[[], None],
    price_of: PriceOf,
    sleep: Sleep = polling.sleep,
) -> RunDrillReport:
    """Have the TPU lost by `strike`, and return once the next attempt of the run tells a step, or has ended.

    After a preemption this watches the run; after a reboot its hosts are on their own. Raises what a watcher
    raises, DeadlineError, and InterruptedByUser: what was begun goes on.
    """
    try:
        return _Drill(planned, tools, price_of, sleep).run(strike)
    except KeyboardInterrupt as error:
        name = planned.run.name
        raise InterruptedByUser(
            f"Interrupted: the drill of run '{name}' goes on.", hint=f"Restart the run: tpuctl watch {name}"
        ) from error


class _Drill:
    """One drill."""

    def __init__(self, planned: RunDrillPlan, tools: Tools, price_of: PriceOf, sleep: Sleep) -> None:
        self._plan = planned
        self._run = planned.run
        self._tools = tools
        self._price_of = price_of
        self._sleep = sleep
        self._shown = ""

    def run(self, strike: Callable[[], None]) -> RunDrillReport:
        begun, number = clock.iso(self._run.bucket.now()), self._plan.attempt
        self._tools.report(f"{self._plan.kind} of {self._plan.tpu.name}")
        strike()
        self._poll(self._is_restarted, f"run '{self._run.name}' to be restarted")
        (verdict,) = [each for each in self._run.earlier_verdicts(number + 1) if each.attempt == number]
        self._tools.report(f"attempt {number} {verdict.outcome}: {verdict.evidence}")
        following = self._run.attempt(number + 1)
        self._poll(self._has_told_a_step, f"attempt {number + 1} to tell a step")
        return self._report(begun, verdict, following.record.tpu)

    def _report(self, begun: str, verdict: Verdict, tpu: Tpu) -> RunDrillReport:
        run, number = self._run, verdict.attempt + 1
        item, told = run.bucket.stat(run.paths.attempt(number)), first_step(run, number)
        seconds = (clock.parse(told) - clock.parse(begun)).total_seconds() if told else None
        saved = verdict.checkpoint if verdict.checkpoint != self._plan.checkpoint else ""
        return RunDrillReport(
            run=run.name,
            kind=self._plan.kind,
            begun=begun,
            ended=verdict.ended or verdict.decided,
            outcome=verdict.outcome,
            evidence=verdict.evidence,
            saved=saved,
            resumed_from=verdict.checkpoint,
            steps_lost=steps_lost(run, verdict),
            attempt=number,
            node=tpu.name,
            zone=tpu.zone,
            restarted=item.updated if item else "",
            next_step=told,
            seconds_without_steps=seconds,
            cost=cost(self._price_of(tpu), seconds or 0.0),
        )

    def _is_restarted(self) -> bool | None:
        if self._run.bucket.stat(self._run.paths.attempt(self._plan.attempt + 1)):
            return True
        if self._plan.kind == PREEMPTION:
            event = step(self._run, self._tools)
            if event.line != self._shown:
                self._tools.report(event.line)
            self._shown = event.line
        verdict = self._run.verdict()
        if verdict and not verdict.restarts:
            raise StateError(
                f"Run '{self._run.name}' {verdict.outcome}: {verdict.evidence}.",
                hint=f"tpuctl describe {self._run.name}",
            )
        return None

    def _has_told_a_step(self) -> bool | None:
        number = self._plan.attempt + 1
        if first_step(self._run, number):
            return True
        statuses = self._run.attempt(number).statuses()
        return all(status is not None and status.state == FINISHED for status in statuses) or None

    def _poll(self, check: Callable[[], bool | None], awaiting: str) -> None:
        hint = f"tpuctl describe {self._run.name}"
        poll(check, awaiting=awaiting, timeout=LONGEST, hint=hint, backoff=PAUSES, sleep=self._sleep)
