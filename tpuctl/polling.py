"""Waits and retries by one policy: pauses and time limits. Clock and sleep are arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tpuctl.errors import DeadlineError

T = TypeVar("T")
Sleep = Callable[[float], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Backoff:
    """Pauses between attempts, in seconds: `first`, growing by `factor` up to `longest`."""

    first: float = 0.2
    longest: float = 5.0
    factor: float = 1.5

    def pauses(self) -> Iterator[float]:
        """Yield the seconds of each pause, without end."""
        pause = self.first
        while True:
            yield pause
            pause = min(pause * self.factor, self.longest)


BACKOFF = Backoff()
NO_PAUSE = Backoff(first=0.0)
"""For requests that fail because another client was first: the next attempt finds another state."""


def poll(
    check: Callable[[], T | None],
    *,
    awaiting: str,
    timeout: float,
    hint: str = "",
    backoff: Backoff = BACKOFF,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> T:
    """Call `check` until it returns anything but None, and return that.

    `awaiting` completes "Waited 30 s for ...". Raises DeadlineError with `hint` after `timeout` seconds,
    `check` being called once more at the end; an error of `check` is raised as it is.
    """
    deadline = clock() + timeout
    for pause in backoff.pauses():
        result = check()
        if result is not None:
            return result
        remaining = deadline - clock()
        if remaining <= 0:
            raise DeadlineError(f"Waited {timeout:.0f} s for {awaiting}.", hint=hint)
        sleep(min(pause, remaining))
    raise AssertionError("pauses() has no end")


def retry(
    call: Callable[[], T],
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    attempts: int | None = None,
    timeout: float = float("inf"),
    backoff: Backoff = BACKOFF,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> T:
    """Return the result of `call`, calling it again after each error of the classes `on`.

    Gives up after so many `attempts` or, where another pause would not end within `timeout` seconds of the
    first call: the last error is raised then.
    """
    deadline = clock() + timeout
    for attempt, pause in enumerate(backoff.pauses(), start=1):
        try:
            return call()
        except on:
            if attempt == attempts or clock() + pause > deadline:
                raise
        sleep(pause)
    raise AssertionError("pauses() has no end")
