"""Waits while a fault holds something up: until the fault is over or removed."""

from __future__ import annotations

import asyncio

from tpuctl.sim.faults.registry import FaultRegistry

POLL_INTERVAL = 0.5
"""Seconds between looks at the clock, which a test can advance."""


async def while_in_force(faults: FaultRegistry, identifier: str, seconds: float | None = None) -> None:
    """Wait until the fault is over or removed, or `seconds` have passed (None: without end)."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def on_change() -> None:
        loop.call_soon_threadsafe(changed.set)

    end = None if seconds is None else loop.time() + seconds
    faults.add_listener(on_change)
    try:
        while fault := faults.find(identifier):
            waits = [POLL_INTERVAL]
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
        faults.remove_listener(on_change)
