"""Decides how a run ended: by its workers' statuses, or by its node if they stop sending heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tpuctl import clock, runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import JobFailedError, PreemptedError, StateError, TpuctlError
from tpuctl.flows.nodes.lookup import node_state
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.keeper.records import EXPIRED, IDLED
from tpuctl.nodes import NodeId, NodeState
from tpuctl.runs import Attempt, Verdict
from tpuctl.worker.records import FINISHED, PREPARING, RUNNING, UNKNOWN, WorkerStatus

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket

Statuses = Sequence[WorkerStatus | None]
"""One per worker that runs the script; None for a worker that has written none yet."""

CHECK_NODE_AFTER = 30.0
"""Seconds without a heartbeat (one comes every 10) after which the node's state is read."""

LOST_AFTER = 120.0
"""Seconds without a heartbeat after which a worker is lost though its node is still there."""

NODE_STATE_DELAY = 30.0
"""Seconds within which a node shows that it is being preempted or deleted, after its workers were stopped."""

KEEPER_REASONS = {EXPIRED: "the end of its --ttl", IDLED: "that nobody used it for its --idle"}
MOST_ENDS = 20
"""Records of a keeper that are listed: each failed deletion may leave one."""

STARTING = "starting"
"""State of a worker that has written no status yet."""
STATES = (STARTING, PREPARING, RUNNING, FINISHED)


@dataclass(frozen=True)
class RunState:
    """A run's verdict, or, while it has none, what its workers wrote last."""

    verdict: Verdict | None
    statuses: Statuses = ()
    error: BadObjectError | None = None
    """Why nothing is known: the verdict, or the attempt that would decide it, cannot be read."""

    @property
    def label(self) -> str:
        """The verdict's outcome, else the state of the slowest worker; one that is not known here wins."""
        if self.error:
            return UNKNOWN
        if self.verdict:
            return self.verdict.outcome
        states = [status.state if status else STARTING for status in self.statuses]
        return min(states, key=lambda state: STATES.index(state) if state in STATES else -1)


def settle(run: StoredRun, provider: Provider, at: datetime) -> RunState:
    """Return the run's state, after writing its verdict when it can be decided now.

    The first reader decides; of two at once one verdict is written and both return it.
    Raises NotFoundError for a run without an attempt.
    """
    try:
        verdict = run.verdict()
        if verdict:
            return RunState(verdict)
        attempt = run.last_attempt()
        statuses = attempt.statuses()
    except BadObjectError as error:
        return RunState(None, error=error)
    node = attempt.record.tpu.id
    decided = decide(
        run.name,
        attempt.record,
        statuses,
        at,
        lambda: node_state(provider, node),
        lambda: end_by_keeper(run.bucket, node),
    )
    return RunState(run.end(decided) if decided else None, statuses)


def decide(
    run: str,
    attempt: Attempt,
    statuses: Statuses,
    at: datetime,
    read_node: Callable[[], NodeState],
    read_end: Callable[[], str] = lambda: "",
) -> Verdict | None:
    """Return the verdict that statuses and the node's state allow; None while it cannot be decided.

    `read_node` reads the state of the attempt's node, `read_end` why its keeper ended it.
    """
    ending = _ending_by_workers(statuses) or _ending_by_node(attempt, statuses, at, read_node, read_end)
    if ending is None:
        return None
    return Verdict(run, ending.outcome, attempt.attempt, clock.iso(at), ending.evidence, ending.exit_code)


def end_by_keeper(bucket: Bucket, node: NodeId) -> str:
    """Return what the record of a node's keeper says about its end; empty without a record."""
    folder = NodePaths.of(node).keeper
    names = [item.name.removeprefix(folder) for item in bucket.objects(folder, most=MOST_ENDS)]
    reasons = [
        KEEPER_REASONS[reason] for name in names if (reason := name.partition("-")[0]) in KEEPER_REASONS
    ]
    return f"the node was deleted: its keeper recorded {reasons[-1]}" if reasons else ""


def error_of(verdict: Verdict) -> TpuctlError | None:
    """Return the error that a verdict means for a command that waited for the run; None for success."""
    hint = f"See the end of its log: {next_command(verdict)}"
    if verdict.outcome == runs.SUCCEEDED:
        return None
    if verdict.outcome == runs.PREEMPTED:
        return PreemptedError(f"Run '{verdict.run}' was preempted: {verdict.evidence}.", hint=hint)
    if verdict.outcome == runs.FAILED:
        return JobFailedError(
            f"Run '{verdict.run}' failed: {verdict.evidence}.", hint=hint, job_exit_code=verdict.exit_code
        )
    return StateError(f"Run '{verdict.run}' was {verdict.outcome}: {verdict.evidence}.", hint=hint)


def next_command(verdict: Verdict) -> str:
    """Return the command that a user needs next: the results of a success, else what shows the reason."""
    if verdict.outcome == runs.SUCCEEDED:
        return f"tpuctl pull {verdict.run}"
    return f"tpuctl logs {verdict.run} --tail 20"


class _Ending(NamedTuple):
    outcome: str
    evidence: str
    exit_code: int | None = None


def _ending_by_workers(statuses: Statuses) -> _Ending | None:
    """Return how the scripts ended, unless a worker was stopped: then its node decides."""
    if _stopped(statuses):
        return None
    failed = [status for status in _finished(statuses) if status.exit_code != 0]
    if failed:
        # The other workers would wait for it for ever, and bill.
        others = "" if _all_finished(statuses) else "; the other workers may keep running until 'tpuctl down'"
        return _Ending(runs.FAILED, _failure(failed[0]) + others, failed[0].exit_code)
    if _all_finished(statuses):
        return _Ending(runs.SUCCEEDED, "every worker's script ended with exit code 0")
    return None


def _ending_by_node(
    attempt: Attempt,
    statuses: Statuses,
    at: datetime,
    read_node: Callable[[], NodeState],
    read_end: Callable[[], str],
) -> _Ending | None:
    """Return what the node's state says of workers that were stopped or that send no heartbeats."""
    stopped = _stopped(statuses)
    silence = _silence(attempt, statuses, at)
    if not stopped and silence <= CHECK_NODE_AFTER:
        return None
    state = read_node()
    if state is NodeState.PREEMPTED:
        return _Ending(runs.PREEMPTED, f"the node is {state}")
    if state in (NodeState.GONE, NodeState.DELETING):
        return _Ending(runs.STOPPED, read_end() or "the node was deleted")
    if state in (NodeState.STOPPING, NodeState.STOPPED):
        return _Ending(runs.STOPPED, "the node was stopped")
    if stopped:
        decided = _all_finished(statuses) and _node_state_is_current(stopped[0], at)
        evidence = f"worker {stopped[0].worker} was ended by {stopped[0].stopped}"
        return _Ending(runs.STOPPED, evidence) if decided else None
    if silence <= LOST_AFTER or any(status and status.state == UNKNOWN for status in statuses):
        return None
    return _Ending(runs.LOST, f"no heartbeat for {LOST_AFTER:.0f} s while the node was {state}")


def _finished(statuses: Statuses) -> list[WorkerStatus]:
    return [status for status in statuses if status and status.is_finished]


def _stopped(statuses: Statuses) -> list[WorkerStatus]:
    return [status for status in _finished(statuses) if status.stopped]


def _all_finished(statuses: Statuses) -> bool:
    return len(_finished(statuses)) == len(statuses)


def _silence(attempt: Attempt, statuses: Statuses, at: datetime) -> float:
    """Return the seconds since the oldest heartbeat of the workers that have not finished; 0 without any.

    The start of the attempt stands for a heartbeat that nobody wrote, or that cannot be read.
    """
    unfinished = [status for status in statuses if not (status and status.is_finished)]
    heartbeats = [(status and status.heartbeat) or attempt.created for status in unfinished]
    return max(((at - clock.parse(heartbeat)).total_seconds() for heartbeat in heartbeats), default=0.0)


def _node_state_is_current(status: WorkerStatus, at: datetime) -> bool:
    """Return whether the node would show by now that it is going away: a worker is stopped before that."""
    if not status.finished:
        return True
    return (at - clock.parse(status.finished)).total_seconds() > NODE_STATE_DELAY


def _failure(status: WorkerStatus) -> str:
    if status.error:
        return f"worker {status.worker}: {status.error}"
    if status.signal:
        return f"worker {status.worker}'s script was ended by {status.signal}"
    return f"worker {status.worker}'s script ended with exit code {status.exit_code}"
