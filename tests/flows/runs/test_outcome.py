"""How a run ended, from its workers' statuses and its node's state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tpuctl import clock, runs
from tpuctl.errors import JobFailedError, PreemptedError, StateError
from tpuctl.flows.runs.outcome import RunState, decide, error_of
from tpuctl.nodes import NodeState
from tpuctl.runs import Attempt, Tpu, Verdict
from tpuctl.worker import timing
from tpuctl.worker.records import UNKNOWN, WorkerStatus

ENDED = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TPU = Tpu("n1", "7", "p", "europe-west4-a", "v3-8", "base", 1, spot=True)
ATTEMPT = Attempt(1, clock.iso(ENDED), TPU, (0,))
STOPPED = WorkerStatus(
    0, 1, "7", "finished", clock.iso(ENDED), finished=clock.iso(ENDED), exit_code=143, stopped="SIGTERM"
)


RUNNING = WorkerStatus(0, 1, "7", "running", clock.iso(ENDED))


@pytest.mark.parametrize(
    ("seconds", "state", "outcome"),
    [
        (31, NodeState.PREEMPTED, runs.PREEMPTED),  # too fast for the worker to write it
        (31, NodeState.GONE, runs.STOPPED),
        (31, NodeState.STOPPED, runs.STOPPED),
        (31, NodeState.READY, None),
        (120, NodeState.READY, None),
        (121, NodeState.READY, runs.LOST),
    ],
)
def test_the_node_decides_when_a_worker_sends_no_heartbeats(
    seconds: float, state: NodeState, outcome: str | None
) -> None:
    at = ENDED + timedelta(seconds=seconds)
    for statuses in ([RUNNING], [None]):
        verdict = decide("r", ATTEMPT, statuses, at, lambda: state)
        assert (verdict and verdict.outcome) == outcome


def test_a_status_that_cannot_be_read_decides_nothing() -> None:
    at = ENDED + timedelta(days=1)
    unknown = WorkerStatus(0, 1, "", UNKNOWN, "")
    assert decide("r", ATTEMPT, [unknown], at, lambda: NodeState.READY) is None
    gone = decide("r", ATTEMPT, [unknown], at, lambda: NodeState.GONE)
    assert gone is not None
    assert gone.outcome == runs.STOPPED
    assert RunState(None, [unknown, RUNNING, None]).label == UNKNOWN


def test_the_nodes_state_is_not_read_while_heartbeats_come() -> None:
    def node_state() -> NodeState:
        raise AssertionError

    assert decide("r", ATTEMPT, [RUNNING], ENDED + timedelta(seconds=30), node_state) is None
    assert 3 * timing.HEARTBEAT <= 30, "three may be late"


@pytest.mark.parametrize(
    ("seconds", "state", "outcome"),
    [
        (1, NodeState.READY, None),  # a worker is stopped before its node shows why
        (1, NodeState.PREEMPTED, runs.PREEMPTED),
        (1, NodeState.DELETING, runs.STOPPED),
        (1, NodeState.STOPPING, runs.STOPPED),
        (30, NodeState.READY, None),
        (31, NodeState.READY, runs.STOPPED),
        (31, NodeState.PREEMPTED, runs.PREEMPTED),
    ],
)
def test_a_worker_that_was_stopped_was_preempted_if_its_node_was(
    seconds: float, state: NodeState, outcome: str | None
) -> None:
    at = ENDED + timedelta(seconds=seconds)
    verdict = decide("r", ATTEMPT, [STOPPED], at, lambda: state)
    assert (verdict and verdict.outcome) == outcome


@pytest.mark.parametrize(
    ("states", "label"),
    [
        (["running", "preparing", "finished"], "preparing"),
        (["running", None], "starting"),
        (["finished", "finished"], "finished"),
        (["running", "queued"], "queued"),  # of a later version
    ],
)
def test_a_run_without_a_verdict_is_as_far_as_its_slowest_worker(
    states: list[str | None], label: str
) -> None:
    statuses = [WorkerStatus(0, 1, "7", state, clock.iso(ENDED)) if state else None for state in states]
    assert RunState(None, statuses).label == label


def finished(worker: int, **changes: object) -> WorkerStatus:
    """Return the last status of a worker whose script ended with exit code 0, unless changed."""
    status = WorkerStatus(worker, 1, "7", "finished", clock.iso(ENDED), clock.iso(ENDED), exit_code=0)
    return replace(status, **changes)


def verdict_of(*statuses: WorkerStatus | None) -> Verdict | None:
    """Return the verdict a second after the statuses were written, while the node is READY."""
    return decide("r", ATTEMPT, statuses, ENDED + timedelta(seconds=1), lambda: NodeState.READY)


def test_a_run_succeeds_when_every_worker_has_finished_with_0() -> None:
    assert verdict_of(finished(0), None) is None
    assert verdict_of(finished(0), replace(RUNNING, worker=1)) is None
    assert verdict_of(finished(0), finished(1)) == Verdict(
        "r", runs.SUCCEEDED, 1, "2026-01-01T12:00:01Z", "every worker's script ended with exit code 0"
    )


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"exit_code": 7}, "worker 1's script ended with exit code 7"),
        ({"exit_code": 137, "signal": "SIGKILL"}, "worker 1's script was ended by SIGKILL"),
        ({"exit_code": None, "error": "BundleError: gone"}, "worker 1: BundleError: gone"),
    ],
)
def test_one_worker_that_fails_ends_the_run_with_its_reason(
    changes: dict[str, object], evidence: str
) -> None:
    verdict = verdict_of(finished(0), finished(1, **changes))
    assert verdict
    assert (verdict.outcome, verdict.evidence) == (runs.FAILED, evidence)
    assert verdict.exit_code == changes["exit_code"]
    early = verdict_of(RUNNING, finished(1, **changes))
    assert early
    assert early.evidence == f"{evidence}; the other workers may keep running until 'tpuctl down'"


def test_a_worker_that_was_stopped_is_the_evidence_once_all_have_ended() -> None:
    later = ENDED + timedelta(seconds=31)
    for other, outcome in ((finished(1), runs.STOPPED), (replace(RUNNING, worker=1), None)):
        fresh = replace(other, heartbeat=clock.iso(later))
        verdict = decide("r", ATTEMPT, [STOPPED, fresh], later, lambda: NodeState.READY)
        assert (verdict and verdict.outcome) == outcome
        assert verdict is None or verdict.evidence == "worker 0 was ended by SIGTERM"


def test_the_evidence_of_a_lost_run_says_how_long_no_heartbeat_came() -> None:
    verdict = decide("r", ATTEMPT, [RUNNING], ENDED + timedelta(seconds=121), lambda: NodeState.READY)
    assert verdict
    assert verdict.evidence == "no heartbeat for 120 s while the node was READY"


def test_the_oldest_heartbeat_of_the_workers_that_have_not_finished_counts() -> None:
    def node_state() -> NodeState:
        raise AssertionError

    at = ENDED + timedelta(seconds=500)
    fresh = replace(RUNNING, heartbeat=clock.iso(at))
    assert decide("r", ATTEMPT, [fresh, finished(1)], at, node_state) is None
    verdict = decide("r", ATTEMPT, [fresh, RUNNING], at, lambda: NodeState.READY)
    assert verdict
    assert verdict.outcome == runs.LOST


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (runs.FAILED, JobFailedError, "Run 'r' failed: because."),
        (runs.PREEMPTED, PreemptedError, "Run 'r' was preempted: because."),
        (runs.STOPPED, StateError, "Run 'r' was stopped: because."),
        (runs.LOST, StateError, "Run 'r' was lost: because."),
    ],
)
def test_each_outcome_but_success_is_an_error_for_who_waited(
    outcome: str, error: type[Exception], message: str
) -> None:
    verdict = Verdict("r", outcome, 1, clock.iso(ENDED), "because", 7)
    raised = error_of(verdict)
    assert type(raised) is error
    assert raised
    assert raised.message == message
    assert raised.hint == "See the end of its log: tpuctl logs r --tail 20"
    assert raised.facts.get("job_exit_code") == (7 if outcome == runs.FAILED else None)


def test_success_is_no_error() -> None:
    assert error_of(Verdict("r", runs.SUCCEEDED, 1, clock.iso(ENDED), "because", 0)) is None
