"""What a run's state is called, and what its verdict keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import STATUS, write_run
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.worker.records import FINISHED, StopRequest, WorkerStatus, encode

TIME = "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("states", "label"),
    [
        (["running", "preparing", "finished"], "preparing"),
        (["running", None], "starting"),
        (["finished", "finished"], "finished"),
        (["running", "queued"], "queued"),  # of a later version
        (["unknown", "running", None], "unknown"),
    ],
)
def test_a_run_without_a_verdict_is_as_far_as_its_slowest_worker(
    states: list[str | None], label: str
) -> None:
    statuses = [WorkerStatus(0, 1, "7", state, TIME) if state else None for state in states]
    assert RunState(None, statuses).label == label


def test_a_run_of_which_nobody_can_say_anything_is_unreachable() -> None:
    statuses = [WorkerStatus(0, 1, "7", "running", TIME)]
    assert RunState(None, statuses, doubt="worker 0 has been silent for 90 s").label == "unreachable"
    assert RunState(None, statuses, unanswered="You may not read it.").label == "unknown"


def test_a_verdict_keeps_why_the_first_script_failed(bucket: Bucket) -> None:
    run = write_run(bucket)
    for worker in range(4):
        status = replace(
            STATUS, worker=worker, state=FINISHED, exit_code=int(worker == 2),
            cause="disk full" * (worker == 2), tail="OSError: [Errno 28]" * (worker == 2),
        )  # fmt: skip
        bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
    verdict = settle(run, Witnesses(MemoryProvider())).verdict
    assert verdict
    assert (verdict.outcome, verdict.cause, verdict.last_line) == (
        runs.FAILED, "disk full", "OSError: [Errno 28]",
    )  # fmt: skip


@pytest.mark.parametrize("cause", ["preempted", "maintenance"])
@pytest.mark.parametrize("stop", [True, False])
def test_a_run_that_was_asked_to_stop_was_stopped_whatever_becomes_of_its_machine(
    bucket: Bucket, cause: str, stop: bool
) -> None:
    """It may save when the host goes down: nobody starts again what somebody has stopped."""
    run = write_run(bucket)
    for worker in range(4):
        status = replace(STATUS, worker=worker, state=FINISHED, exit_code=143, stopped="SIGTERM", cause=cause)
        bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
    if stop:
        bucket.create(run.paths.stop, encode(StopRequest("r1", "ada@example.com", TIME)))
    verdict = settle(run, Witnesses(MemoryProvider())).verdict
    assert verdict
    assert verdict.outcome == (runs.STOPPED if stop else cause)
    assert verdict.stopped_by == "ada@example.com" * stop
    announced = {"preempted": "its preemption", "maintenance": "its maintenance"}[cause]
    asked = "stopped by ada@example.com; " * stop
    assert verdict.evidence == f"{asked}the host of worker 0 announced {announced} and stopped it"


def test_what_is_no_request_to_stop_a_run_changes_nothing(bucket: Bucket) -> None:
    run = write_run(bucket)
    for worker in range(4):
        status = replace(STATUS, worker=worker, state=FINISHED, stopped="SIGTERM", cause="preempted")
        bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
    bucket.create(run.paths.stop, encode(StopRequest("r2", "ada@example.com", TIME)))
    verdict = settle(run, Witnesses(MemoryProvider())).verdict
    assert verdict
    assert (verdict.outcome, verdict.stopped_by) == (runs.PREEMPTED, "")
