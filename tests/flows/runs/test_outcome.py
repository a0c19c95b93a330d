"""How a run ended, from its workers' statuses and its node's state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tpuctl import clock, runs
from tpuctl.flows.runs.outcome import CHECK_NODE_AFTER, LOST_AFTER, NODE_STATE_DELAY, RunState, decide
from tpuctl.nodes import NodeState
from tpuctl.runs import Attempt, Tpu
from tpuctl.worker.records import WorkerStatus

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
        (CHECK_NODE_AFTER + 1, NodeState.PREEMPTED, runs.PREEMPTED),  # too fast for the worker to write it
        (CHECK_NODE_AFTER + 1, NodeState.GONE, runs.STOPPED),
        (CHECK_NODE_AFTER + 1, NodeState.READY, None),
        (LOST_AFTER, NodeState.READY, None),
        (LOST_AFTER + 1, NodeState.READY, runs.LOST),
    ],
)
def test_the_node_decides_when_a_worker_sends_no_heartbeats(
    seconds: float, state: NodeState, outcome: str | None
) -> None:
    at = ENDED + timedelta(seconds=seconds)
    for statuses in ([RUNNING], [None]):
        verdict = decide("r", ATTEMPT, statuses, at, lambda: state)
        assert (verdict and verdict.outcome) == outcome


def test_the_nodes_state_is_not_read_while_heartbeats_come() -> None:
    def node_state() -> NodeState:
        raise AssertionError

    assert decide("r", ATTEMPT, [RUNNING], ENDED + timedelta(seconds=CHECK_NODE_AFTER), node_state) is None


@pytest.mark.parametrize(
    ("seconds", "state", "outcome"),
    [
        (1, NodeState.READY, None),  # a worker is stopped before its node shows why
        (1, NodeState.PREEMPTED, runs.PREEMPTED),
        (1, NodeState.DELETING, runs.STOPPED),
        (NODE_STATE_DELAY + 1, NodeState.READY, runs.STOPPED),
        (NODE_STATE_DELAY + 1, NodeState.PREEMPTED, runs.PREEMPTED),
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
