"""Defines the simulator's clock: it runs with the machine's or stands still, and can be advanced."""

from __future__ import annotations

import asyncio
import threading
import time

from tpuctl.errors import UsageError


class Clock:
    """Seconds since 1970. Any thread may read and advance it; only `advance` moves a `still` clock."""

    def __init__(self, *, still: bool = False) -> None:
        self._still_at = time.time() if still else None
        self._ahead = 0.0
        self._lock = threading.Lock()
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def now(self) -> float:
        """Return the time."""
        return (time.time() if self._still_at is None else self._still_at) + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the time forward and wake the sleepers whose time has come; raises UsageError if negative."""
        if seconds < 0:
            raise UsageError(
                f"The clock cannot go back by {-seconds:g} s.", hint="Start another simulator instead."
            )
        with self._lock:
            self._ahead += seconds
            for loop, woken in self._sleepers:
                loop.call_soon_threadsafe(woken.set)

    async def sleep(self, seconds: float) -> None:
        """Return once so many seconds of this time have passed."""
        until = self.now() + seconds
        sleeper = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._sleepers.add(sleeper)
        try:
            while (remaining := until - self.now()) > 0:
                await self._wait(sleeper[1], remaining)
        finally:
            with self._lock:
                self._sleepers.discard(sleeper)

    async def _wait(self, moved: asyncio.Event, seconds: float) -> None:
        """Wait until the clock is advanced, or `seconds` of the machine's time have passed."""
        moved.clear()
        try:
            await asyncio.wait_for(moved.wait(), seconds if self._still_at is None else None)
        except TimeoutError:
            pass
