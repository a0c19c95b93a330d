"""Slow links: what applies to one shares its bandwidth, each way."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from tpuctl.sim.faults import Fault

BURST = 64 << 10
"""Bytes at most that are sent at a time."""
SMOOTHNESS = 20
"""Pieces a second at least."""


class Links:
    """When each link will have sent what was given to it so far."""

    def __init__(self) -> None:
        self._free: defaultdict[tuple[str, bool], float] = defaultdict(float)

    def smooth(self, fault: Fault) -> int:
        """Return how many bytes may be sent at a time; 0 where it does not matter."""
        bandwidth = fault["bandwidth"] if fault.kind == "gcs-slow" else 0
        return max(1, min(BURST, bandwidth // SMOOTHNESS)) if bandwidth else 1 << 30

    async def carry(self, fault: Fault, size: int, *, up: bool) -> None:
        """Wait until the link has carried so many bytes more."""
        if not fault["bandwidth"]:
            return
        now = time.monotonic()
        free = max(now, self._free[fault.id, up]) + size / fault["bandwidth"]
        self._free[fault.id, up] = free
        await asyncio.sleep(free - now)
