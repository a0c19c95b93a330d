"""A run that is started again while a command waits for its end: what is said, and how long it waits."""

from __future__ import annotations

from itertools import islice
from typing import Any, cast

import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.errors import DeadlineError, InterruptedByUser, NotFoundError, TpuctlError, UsageError
from tpuctl.flows.runs import whole as flow
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.lease import BUSY, ENDED_FOR_GOOD, GOES_ON, RESTARTED, WAITS, WatchEvent
from tpuctl.flows.runs.stored_run import StoredRun

PAUSES = [*islice(watch.PAUSES.pauses(), 3)]


def event(action: str, detail: str = "because") -> WatchEvent:
    return WatchEvent("r1", 2, action, detail)


class Reports(list[str]):
    """What a command says."""

    @property
    def report(self) -> Any:
        return self.append


def awaited(
    monkeypatch: pytest.MonkeyPatch, *steps: WatchEvent | TpuctlError | KeyboardInterrupt, **patience: float
) -> tuple[list[str], list[float]]:
    """Wait through these steps, all of them, and return what was said and the pauses between."""
    left, reports, pauses = list(steps), Reports(), list[float]()

    def step(run: StoredRun, tools: object) -> WatchEvent:
        taken = left.pop(0)
        if isinstance(taken, WatchEvent):
            return taken
        raise taken

    monkeypatch.setattr(flow, "step", step)
    run = StoredRun(cast("Any", MemoryBucket()), "r1")
    flow.await_restart(run, cast("Any", reports), pauses.append, **patience)
    assert left == []
    return [*reports], pauses


@pytest.mark.parametrize("action", [GOES_ON, RESTARTED, ENDED_FOR_GOOD])
def test_what_is_decided_at_once_is_not_said(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    assert awaited(monkeypatch, event(action)) == ([], [])


def test_each_reason_to_wait_is_said_once_and_so_is_the_end_of_the_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [event(WAITS, "no zone"), event(WAITS, "no zone"), event(WAITS, "no quota"), event(RESTARTED)]
    reports, pauses = awaited(monkeypatch, *steps)
    assert reports == [steps[0].line, steps[2].line, steps[3].line]
    assert pauses == PAUSES


def test_another_watcher_is_looked_at_more_often_than_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, pauses = awaited(monkeypatch, event(BUSY), event(BUSY), event(WAITS), event(GOES_ON))
    assert pauses == [watch.INTERVAL, watch.INTERVAL, PAUSES[0]]
    assert reports == [event(BUSY).line, event(WAITS).line, event(GOES_ON).line]


def test_a_service_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, pauses = awaited(monkeypatch, DeadlineError("No answer."), event(GOES_ON))
    assert reports == [WatchEvent("r1", 0, WAITS, "No answer.").line, event(GOES_ON).line]
    assert pauses == PAUSES[:1]


@pytest.mark.parametrize(
    "error", [UsageError("A value is missing."), NotFoundError("No run."), InterruptedByUser("Interrupted.")]
)
def test_what_another_step_would_only_repeat_is_an_error(
    monkeypatch: pytest.MonkeyPatch, error: TpuctlError
) -> None:
    with pytest.raises(type(error)):
        awaited(monkeypatch, error)


def test_patience_has_an_end_where_it_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [DeadlineError("No answer."), event(BUSY), event(WAITS, "no zone")]
    patience = sum(PAUSES[:1]) + watch.INTERVAL
    with pytest.raises(DeadlineError, match="no zone"):
        awaited(monkeypatch, *steps, event(GOES_ON), patience=patience)
    reports, pauses = awaited(monkeypatch, *steps[:2], event(GOES_ON), patience=patience)
    assert (len(reports), pauses) == (3, [PAUSES[0], watch.INTERVAL])
