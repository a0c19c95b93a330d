"""Waiting, on a clock that the test moves."""

from __future__ import annotations

from itertools import islice

import pytest

from tpuctl.errors import DeadlineError
from tpuctl.polling import pauses, poll


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_pauses_grow_up_to_the_most() -> None:
    assert list(islice(pauses(1, 5, 2), 5)) == [1, 2, 4, 5, 5]


def test_what_is_there_already_is_not_waited_for() -> None:
    time = Time()
    assert poll(lambda: "x", what="x", timeout=0, sleep=time.sleep, clock=time) == "x"
    assert time.slept == []


@pytest.mark.parametrize("found", [0, "", False, []])
def test_anything_but_none_is_found(found: object) -> None:
    assert poll(lambda: found, what="x", timeout=0) == found


def test_it_is_looked_again_after_each_pause() -> None:
    time = Time()
    answers = iter([None, None, "x"])
    result = poll(lambda: next(answers), what="x", timeout=30, first=1, most=5, sleep=time.sleep, clock=time)
    assert result == "x"
    assert time.slept == [1, 1.5]


def test_the_deadline_names_what_was_waited_for_and_for_how_long() -> None:
    time = Time()
    with pytest.raises(DeadlineError, match=r"Waited 30 s for the moon\.") as late:
        poll(lambda: None, what="the moon", timeout=30, hint="Look up.", sleep=time.sleep, clock=time)
    assert late.value.hint == "Look up."
    assert late.value.exit_code == 9
    assert sum(time.slept) == pytest.approx(30), "neither less nor more than was said"


def test_it_is_looked_once_more_at_the_deadline() -> None:
    time = Time()
    seen: list[float] = []

    def check() -> None:
        seen.append(time.now)

    with pytest.raises(DeadlineError):
        poll(check, what="x", timeout=10, first=4, most=4, sleep=time.sleep, clock=time)
    assert seen == [100, 104, 108, 110]


def test_a_timeout_shorter_than_the_first_pause_is_kept() -> None:
    time = Time()
    with pytest.raises(DeadlineError):
        poll(lambda: None, what="x", timeout=0.1, first=5, sleep=time.sleep, clock=time)
    assert time.slept == [pytest.approx(0.1)]


def test_an_error_of_the_check_is_not_waited_over() -> None:
    def check() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        poll(check, what="x", timeout=30)
