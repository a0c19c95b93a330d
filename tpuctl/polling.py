"""Waits and retries by one policy: pauses and time limits. Clock and sleep are arguments.

One thread can stop the work of another: a pause of the other then ends as Ctrl-C would end it. Flows handle
both in one place: what they say after Ctrl-C holds after a stop, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from tpuctl.errors import DeadlineError

T = TypeVar("T")
Sleep = Callable[[float], None]
Clock = Callable[[], float]


class Stopped(KeyboardInterrupt):
    """Another thread asked this work to stop."""


class _Signal:
    """What one thread hears of the request; as Ctrl-C it comes once, so that a clean-up is not cut short."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.is_delivered = False

    def deliver(self) -> None:
        """Raise Stopped if that is asked for, and was not raised before."""
        if self.event.is_set() and not self.is_delivered:
            self.is_delivered = True
            raise Stopped


_signal: ContextVar[_Signal | None] = ContextVar("stop", default=None)


@contextmanager
def stopped_by(event: Event) -> Iterator[None]:
    """Let an event stop the work of the block: at its pauses and checks, also in threads of `fanout`."""
    token = _signal.set(_Signal(event))
    try:
        yield
    finally:
        _signal.reset(token)


def sleep(seconds: float) -> None:
    """Sleep; raises Stopped as soon as the work is to stop."""
    signal = _signal.get()
    if signal is None or signal.is_delivered:
        time.sleep(seconds)
    elif signal.event.wait(seconds):
        signal.deliver()


def check(event: Event | None = None) -> None:
    """Raise Stopped if the work is to stop; in a thread that nobody said so to, if that `event` is set."""
    signal = _signal.get()
    if signal:
        signal.deliver()
    elif event and event.is_set():
        raise Stopped


def in_thread(work: Callable[[], T]) -> T:
    """Call `work`, which stops as the thread does that has begun it; for a copy of its context."""
    signal = _signal.get()
    if signal:
        _signal.set(_Signal(signal.event))
    return work()


def was_heard() -> None:
    """Note that the request has ended the work in a thread of this one: it does not come again here."""
    signal = _signal.get()
    if signal:
        signal.is_delivered = True


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


def time_left(seconds: float, *, clock: Clock = time.monotonic) -> Callable[[], float]:
    """Return what says how many of so many seconds are left from now on; 0 when they are over."""
    deadline = clock() + seconds
    return lambda: max(0.0, deadline - clock())


def poll(
    check: Callable[[], T | None],
    *,
    awaiting: str,
    timeout: float,
    hint: str = "",
    backoff: Backoff = BACKOFF,
    sleep: Sleep = sleep,
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
    sleep: Sleep = sleep,
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
