"""Applies faults to the bytes of one request or response: cut, corrupted, stalled or slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from aiohttp import web

from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.faults.bandwidth import BandwidthLimits
from tpuctl.sim.faults.resets import reset
from tpuctl.sim.faults.wait import while_in_force

BODY_FAULTS = ("gcs-cut", "gcs-corrupt", "gcs-stall", "gcs-slow")

OFFSETS = {"gcs-cut": "bytes", "gcs-corrupt": "at", "gcs-stall": "at"}
"""Kind -> the option with the offset in the body at which it takes effect."""


class BodyFaults:
    """The faults that take effect on the bodies of one request and its response."""

    def __init__(self, registry: FaultRegistry, limits: BandwidthLimits, request: web.Request) -> None:
        self._registry = registry
        self._limits = limits
        self._request = request
        self._faults: list[Fault] = []
        self._has_stalled = False

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, fault: Fault) -> None:
        """Add a fault, once."""
        if fault.id not in (added.id for added in self._faults):
            self._faults.append(fault)

    async def apply(self, chunks: AsyncIterator[bytes], *, up: bool) -> AsyncIterator[bytes]:
        """Yield a body with the faults in effect; raises ConnectionResetError at a cut."""
        offset = 0
        async for chunk in chunks:
            for piece in self._pieces(chunk, offset):
                await self._delay(offset, len(piece), up=up)
                yield self._corrupted(piece, offset)
                offset += len(piece)
                if any(fault.kind == "gcs-cut" and offset >= fault["bytes"] for fault in self._faults):
                    self._cut(up=up)

    async def delay_response(self) -> None:
        """Wait for the latency of a slow connection and a stall at byte 0, before the response begins."""
        for fault in self._faults:
            if fault.kind == "gcs-slow" and fault["latency"]:
                await asyncio.sleep(fault["latency"])
        await self._delay(0, 0, up=False)

    def _pieces(self, chunk: bytes, offset: int) -> Iterator[bytes]:
        """Split a chunk at the offsets of faults, and into pieces small enough for a steady slow flow."""
        offsets = [fault[OFFSETS[fault.kind]] for fault in self._faults if fault.kind in OFFSETS]
        largest = min((self._limits.piece_size(fault) for fault in self._faults), default=len(chunk))
        while chunk:
            ahead = [at - offset for at in offsets if at > offset]
            size = min([len(chunk), largest, *ahead])
            yield chunk[:size]
            chunk, offset = chunk[size:], offset + size

    async def _delay(self, offset: int, size: int, *, up: bool) -> None:
        for fault in self._faults:
            if fault.kind == "gcs-stall" and not self._has_stalled and offset >= fault["at"]:
                self._has_stalled = True
                await while_in_force(self._registry, fault.id, fault["seconds"] or None)
            elif fault.kind == "gcs-slow" and size:
                await self._limits.send(fault, size, up=up)

    def _corrupted(self, piece: bytes, offset: int) -> bytes:
        for fault in self._faults:
            if fault.kind == "gcs-corrupt" and offset <= fault["at"] < offset + len(piece):
                at = fault["at"] - offset
                piece = piece[:at] + bytes([piece[at] ^ 0xFF]) + piece[at + 1 :]
        return piece

    def _cut(self, *, up: bool) -> None:
        """End the connection: an upload is reset, the bytes of a download so far still arrive."""
        transport = self._request.transport
        if up:
            reset(transport)
        elif transport is not None:
            transport.close()
        raise ConnectionResetError("the connection was cut")
