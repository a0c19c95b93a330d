"""Waiting for the end of a run: each outcome, a time limit, Ctrl-C, and a service that does not answer."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import write_run
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError, InterruptedByUser, NotFoundError
from tpuctl.flows.runs.control import cancel as flow
from tpuctl.flows.runs.control.cancel import await_end, failure_of
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import Verdict

NOBODY = Witnesses(MemoryProvider())
VERDICT = Verdict("r1", runs.FAILED, 1, "2026-01-01T12:00:00Z", "so it was", 3, basis=runs.BY_WORKERS)


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    return write_run(bucket)


class Clock:
    """A clock that sleeping moves on; `then` happens at the second sleep."""

    def __init__(self, then: object = None) -> None:
        self.time, self.sleeps, self._then = 0.0, 0, then

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.sleeps += 1
        if self.sleeps == 2 and callable(self._then):
            self._then()


def test_the_verdict_is_returned_once_there_is_one(run: StoredRun) -> None:
    clock, lines = Clock(lambda: run.end(VERDICT)), list[str]()
    other = StoredRun(run.bucket, "r1")
    assert await_end(other, NOBODY, 60, lines.append, clock.sleep, clock) == VERDICT
    assert lines == ["starting"]
    error = failure_of(VERDICT)
    assert error
    assert error.exit_code == 100
    assert error.result["outcome"] == runs.FAILED


def test_looks_are_rarer_and_rarer_up_to_ten_seconds(run: StoredRun) -> None:
    clock, pauses = Clock(), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.sleep(seconds)

    with pytest.raises(DeadlineError):
        await_end(run, NOBODY, 100, lambda text: None, sleep, clock)
    assert pauses[0] == 0.5
    assert pauses[:-1] == sorted(pauses[:-1])
    assert max(pauses) == 10.0
    assert sum(pauses) == 100.0


def test_a_time_limit_leaves_the_run(run: StoredRun) -> None:
    clock = Clock()
    with pytest.raises(DeadlineError, match="has not ended within 60 s: it is starting") as late:
        await_end(run, NOBODY, 60, lambda text: None, clock.sleep, clock)
    assert clock.time == 60
    assert late.value.hint == "Follow it: tpuctl logs -f r1\nStop it: tpuctl cancel r1"
    assert run.bucket.stat(run.paths.stop) is None


def test_ctrl_c_leaves_the_run(run: StoredRun) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    clock = Clock(interrupt)
    with pytest.raises(InterruptedByUser, match="Interrupted; run 'r1' goes on"):
        await_end(run, NOBODY, 60, lambda text: None, clock.sleep, clock)
    assert run.bucket.stat(run.paths.stop) is None


def test_a_bucket_that_does_not_answer_is_waited_for(run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    settle, looks = flow.settle, list[int]()

    def fail_once(*arguments: object) -> object:
        looks.append(1)
        if len(looks) == 1:
            raise DeadlineError("The bucket does not answer.")
        return settle(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(flow, "settle", fail_once)
    clock, lines = Clock(lambda: run.end(VERDICT)), list[str]()
    assert await_end(StoredRun(run.bucket, "r1"), NOBODY, 60, lines.append, clock.sleep, clock) == VERDICT
    assert lines == ["The bucket does not answer.", "starting"]


def test_a_run_that_nobody_knows_is_not_waited_for(bucket: Bucket) -> None:
    with pytest.raises(NotFoundError):
        await_end(StoredRun(bucket, "r9"), NOBODY, 60, lambda text: None)
