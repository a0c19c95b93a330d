"""Waking those who wait for the world to change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tpuctl.sim.settings import Profile


class Wakes:
    """Lets tasks sleep until something changes or a time comes, whichever is first."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._sleepers: set[asyncio.Event] = set()

    def call(self) -> None:
        """Wake all who sleep: something has changed."""
        for woken in self._sleepers:
            woken.set()

    def from_any_thread(self) -> Callable[[], None]:
        """Return a function that does `call` on the loop that runs now, from whatever thread."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.call)

        return wake

    async def sleep(self, until: float | None) -> None:
        """Sleep until the next `call`, or until the profile's clock shows `until` (None: never).

        What the caller looked at before must not have changed meanwhile: do not await in between.
        """
        woken = asyncio.Event()
        self._sleepers.add(woken)
        waits: list[asyncio.Future[bool]] = [asyncio.ensure_future(woken.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(self._sleep(until)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sleepers.discard(woken)
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _sleep(self, until: float) -> bool:
        await self._profile.sleep(max(until - self._profile.clock(), 0))
        return True
