"""Pauses before tries, and waiting with a limit."""

from __future__ import annotations

import itertools
import math
import time

import pytest

from tpuctl.host import timing


def test_each_try_comes_after_its_pause() -> None:
    start = time.monotonic()
    assert list(timing.tries((0.0, 0.05))) == [1, 2]
    assert time.monotonic() >= start + 0.05


def test_a_wait_ends_when_the_condition_is_true() -> None:
    states = iter((False, False, True))
    assert timing.wait_until(lambda: next(states), timeout=60, interval=0.0)


def test_a_wait_ends_after_its_limit() -> None:
    assert not timing.wait_until(lambda: False, timeout=0.02, interval=0.01)


def test_a_condition_that_is_true_already_is_looked_at_once() -> None:
    assert timing.wait_until(lambda: True, timeout=0.0)


def test_without_time_there_is_no_second_look() -> None:
    looks = iter((False,))
    assert not timing.wait_until(lambda: next(looks), timeout=0.0)


def test_pauses_grow_by_a_quarter_up_to_the_longest() -> None:
    pauses = list(itertools.islice(timing.growing(0.8, 1.5), 5))
    assert pauses == pytest.approx([0.8, 1.0, 1.25, 1.5, 1.5])


def test_the_seconds_between_two_times() -> None:
    assert timing.between("2026-01-01T12:00:00Z", "2026-01-01T12:01:30Z") == 90
    assert timing.moment("1970-01-01T00:01:00Z") == 60
    assert timing.between("", "2026-01-01T12:00:00Z") == math.inf
    assert timing.between("2026-01-01T12:00:00Z", "soon") == math.inf


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        # docs/runs.md: a worker writes its status, and reads stop.json, every 10 seconds
        ("HEARTBEAT", 10),
        # a worker that is silent is missed after 15 minutes; one that nobody starts any more after one
        ("NEIGHBOUR_SILENCE", 900),
        ("LAUNCH_SILENCE", 60),
        # SIGTERM, and SIGKILL 15 seconds later; a preempted VM has about 30
        ("STOP_GRACE", 15),
        # hosts wait for six hours for one that restarts
        ("MEETING_TIMEOUT", 21_600),
    ],
)
def test_times_are_those_that_docs_promise(name: str, seconds: float) -> None:
    assert getattr(timing, name) == seconds


def test_a_young_log_is_shipped_each_second_and_an_old_one_four_times_a_minute() -> None:
    def pause_at(age: float) -> float:
        return next(pause for limit, pause in timing.LOG_INTERVALS if age < limit)

    assert [pause_at(age) for age in (59, 60, 599, 600)] == [1, 5, 5, 15]
