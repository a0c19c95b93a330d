"""Waiting and retrying, on a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

import pytest

from tpuctl.errors import ConflictError, DeadlineError
from tpuctl.polling import NO_PAUSE, Backoff, Stopped, check, poll, retry, sleep, stopped_by


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


@pytest.fixture
def time() -> Time:
    return Time()


def test_pauses_grow_up_to_the_longest() -> None:
    assert list(islice(Backoff(1, 5, 2).pauses(), 5)) == [1, 2, 4, 5, 5]
    assert list(islice(NO_PAUSE.pauses(), 3)) == [0, 0, 0]


class TestPoll:
    def test_a_result_at_the_first_check_is_not_waited_for(self, time: Time) -> None:
        assert poll(lambda: "x", awaiting="x", timeout=0, sleep=time.sleep, clock=time) == "x"
        assert time.slept == []

    @pytest.mark.parametrize("result", [0, "", False, []])
    def test_anything_but_none_is_a_result(self, result: object) -> None:
        assert poll(lambda: result, awaiting="x", timeout=0) == result

    def test_the_check_is_repeated_after_each_pause(self, time: Time) -> None:
        results = iter([None, None, "x"])
        result = poll(
            lambda: next(results), awaiting="x", timeout=30, backoff=Backoff(1, 5),
            sleep=time.sleep, clock=time,
        )  # fmt: skip
        assert result == "x"
        assert time.slept == [1, 1.5]

    def test_the_error_names_what_was_waited_for_and_for_how_long(self, time: Time) -> None:
        with pytest.raises(DeadlineError, match=r"Waited 30 s for the moon\.") as late:
            poll(lambda: None, awaiting="the moon", timeout=30, hint="Look up.", sleep=time.sleep, clock=time)
        assert late.value.hint == "Look up."
        assert late.value.exit_code == 9
        assert sum(time.slept) == pytest.approx(30), "neither less nor more than the time limit"

    def test_the_last_check_is_at_the_deadline(self, time: Time) -> None:
        checked_at: list[float] = []
        with pytest.raises(DeadlineError):
            poll(
                lambda: checked_at.append(time.now), awaiting="x", timeout=10, backoff=Backoff(4, 4),
                sleep=time.sleep, clock=time,
            )  # fmt: skip
        assert checked_at == [100, 104, 108, 110]

    def test_a_timeout_shorter_than_the_first_pause_is_kept(self, time: Time) -> None:
        with pytest.raises(DeadlineError):
            poll(lambda: None, awaiting="x", timeout=0.1, backoff=Backoff(5), sleep=time.sleep, clock=time)
        assert time.slept == [pytest.approx(0.1)]

    def test_an_error_of_the_check_is_raised_at_once(self) -> None:
        def check() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            poll(check, awaiting="x", timeout=30)


def fails(times: int, error: Exception) -> Callable[[], str]:
    """Return a call that raises `error` so many times, then returns `ok`."""
    calls = iter([error] * times)

    def call() -> str:
        for failure in calls:
            raise failure
        return "ok"

    return call


class TestRetry:
    def test_a_call_that_succeeds_is_made_once(self, time: Time) -> None:
        assert retry(fails(0, ConflictError("x")), on=ConflictError, sleep=time.sleep, clock=time) == "ok"
        assert time.slept == []

    def test_a_call_is_repeated_after_each_pause_until_it_succeeds(self, time: Time) -> None:
        call = fails(2, ConflictError("x"))
        assert retry(call, on=ConflictError, backoff=Backoff(1), sleep=time.sleep, clock=time) == "ok"
        assert time.slept == [1, 1.5]

    def test_the_last_attempts_error_is_raised(self, time: Time) -> None:
        call = fails(3, ConflictError("x"))
        with pytest.raises(ConflictError):
            retry(call, on=ConflictError, attempts=3, backoff=NO_PAUSE, sleep=time.sleep, clock=time)
        assert call() == "ok", "it was called three times"

    def test_it_gives_up_when_the_next_pause_would_pass_the_deadline(self, time: Time) -> None:
        with pytest.raises(ConflictError):
            retry(
                fails(99, ConflictError("x")), on=ConflictError, timeout=10, backoff=Backoff(4, 4),
                sleep=time.sleep, clock=time,
            )  # fmt: skip
        assert time.slept == [4, 4]

    def test_another_error_is_raised_at_once(self, time: Time) -> None:
        with pytest.raises(ValueError, match="broken"):
            retry(fails(1, ValueError("broken")), on=ConflictError, sleep=time.sleep, clock=time)
        assert time.slept == []


class TestStop:
    def test_a_pause_ends_when_another_thread_says_so(self) -> None:
        event = threading.Event()
        other = threading.Thread(target=event.set, daemon=True)
        other.start()
        with stopped_by(event), pytest.raises(Stopped):
            sleep(3600)
        other.join()

    def test_it_comes_once_so_that_a_clean_up_can_pause(self) -> None:
        event = threading.Event()
        event.set()
        with stopped_by(event):
            with pytest.raises(Stopped):
                check()
            check()
            sleep(0)

    def test_a_thread_that_nobody_told_looks_at_the_event_itself(self) -> None:
        event = threading.Event()
        check(event)
        event.set()
        with pytest.raises(Stopped):
            check(event)

    def test_it_holds_for_the_block_alone(self) -> None:
        event = threading.Event()
        event.set()
        with stopped_by(event):
            pass
        check()
        sleep(0)

    def test_poll_and_retry_pause_so(self) -> None:
        event = threading.Event()
        event.set()
        with stopped_by(event), pytest.raises(Stopped):
            poll(lambda: None, awaiting="nothing", timeout=3600)
        with stopped_by(event), pytest.raises(Stopped):
            retry(fail, on=ConflictError)


def fail() -> None:
    """Fail as somebody else's change does."""
    raise ConflictError("Another was first.")
