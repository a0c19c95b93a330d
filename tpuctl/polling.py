"""The one module that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tpuctl.errors import DeadlineError

T = TypeVar("T")
Sleep = Callable[[float], None]
Clock = Callable[[], float]


def pauses(first: float, most: float, factor: float = 1.5) -> Iterator[float]:
    """Yield seconds to wait between tries: `first`, growing by `factor` up to `most`, without end."""
    pause = first
    while True:
        yield pause
        pause = min(pause * factor, most)


def poll(
    check: Callable[[], T | None],
    *,
    what: str,
    timeout: float,
    hint: str = "",
    first: float = 0.2,
    most: float = 5.0,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> T:
    """Call `check` until it returns something, and return that.

    `what` completes "Waited 30 s for ..."; raises DeadlineError with `hint` after `timeout` seconds.
    """
    end = clock() + timeout
    for pause in pauses(first, most):
        found = check()
        if found is not None:
            return found
        left = end - clock()
        if left <= 0:
            raise DeadlineError(f"Waited {timeout:.0f} s for {what}.", hint=hint)
        sleep(min(pause, left))
    raise AssertionError("pauses() has no end")
