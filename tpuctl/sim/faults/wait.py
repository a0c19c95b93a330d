"""Waiting while a fault holds something up: until its time is over, or it is removed."""

from __future__ import annotations

import asyncio

from tpuctl.sim.faults.registry import Faults

LOOK_AGAIN = 0.5
"""Seconds after which to look at the clock: it may have been moved."""


async def while_in_force(faults: Faults, identifier: str, seconds: float | None = None) -> None:
    """Wait until the fault is over or removed, at most so many seconds (None: without end)."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(changed.set)

    end = None if seconds is None else loop.time() + seconds
    faults.listen(tell)
    try:
        while fault := faults.find(identifier):
            waits = [LOOK_AGAIN]
            waits += [end - loop.time()] if end is not None else []
            waits += [fault.ends - faults.clock()] if fault.ends is not None else []
            if min(waits) <= 0:
                return
            try:
                await asyncio.wait_for(changed.wait(), min(waits))
            except TimeoutError:
                continue
            changed.clear()
    finally:
        faults.deafen(tell)
