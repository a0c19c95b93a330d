"""Limits the bandwidth that all transfers of one fault share."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from tpuctl.sim.faults.fault import Fault

LARGEST_PIECE = 64 << 10
"""Bytes at most that are sent at a time."""

PIECES_PER_SECOND = 20
"""At least, where the bandwidth is small."""


class BandwidthLimits:
    """For each fault and direction, the time at which all bytes so far will have been sent."""

    def __init__(self) -> None:
        self._free_at: defaultdict[tuple[str, bool], float] = defaultdict(float)

    def piece_size(self, fault: Fault) -> int:
        """Return how many bytes to send at a time: practically unlimited without a bandwidth."""
        bandwidth: int = fault.get("bandwidth", 0)
        return max(1, min(LARGEST_PIECE, bandwidth // PIECES_PER_SECOND)) if bandwidth else 1 << 30

    async def send(self, fault: Fault, size: int, *, up: bool) -> None:
        """Wait for as long as the bandwidth needs for `size` bytes more."""
        if not fault["bandwidth"]:
            return
        now = time.monotonic()
        free_at = max(now, self._free_at[fault.id, up]) + size / fault["bandwidth"]
        self._free_at[fault.id, up] = free_at
        await asyncio.sleep(free_at - now)
