"""Wakes waiting tasks when the world has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tpuctl.sim.settings import Profile


class ChangeNotifier:
    """Lets tasks wait until something changes or a moment comes, whichever is first."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Wake all waiting tasks: something has changed."""
        for changed in self._waiting:
            changed.set()

    def thread_safe_notify(self) -> Callable[[], None]:
        """Return a function that any thread may call to `notify` on the loop that runs now."""
        loop = asyncio.get_running_loop()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.notify)

        return notify

    async def wait(self, until: float | None) -> None:
        """Wait for the next `notify`, or until the profile's clock shows `until` (None: no limit).

        Do not await between reading the world and this call: a change in between would be missed.
        """
        changed = asyncio.Event()
        self._waiting.add(changed)
        waits: list[asyncio.Future[bool]] = [asyncio.ensure_future(changed.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(self._sleep(until)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(changed)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _sleep(self, until: float) -> bool:
        await self._profile.sleep(max(until - self._profile.clock(), 0))
        return True
