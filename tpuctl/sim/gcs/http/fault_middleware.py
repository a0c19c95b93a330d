"""One request on its way through the faults that were asked for: refused, held up, bent, not answered."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aiohttp import web

from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.faults.wait import while_in_force
from tpuctl.sim.gcs.errors import GcsError, asked_error
from tpuctl.sim.gcs.http.bandwidth import Links

REFUSALS = ("gcs-error", "api-off", "permission", "unavailable", "deadline-exceeded", "error")
LOST_ANSWERS = ("gcs-error", "unavailable", "deadline-exceeded", "error")
BENT = ("gcs-cut", "gcs-corrupt", "gcs-stall", "gcs-slow")
ALL = (*REFUSALS, *BENT, "gcs-reset")

LIMITS = {"gcs-cut": "bytes", "gcs-corrupt": "at", "gcs-stall": "at"}
"""Kind -> the option that says at which byte of a body it works."""

_SERVICE = "storage."
_LINGER_NOT = struct.pack("ii", 1, 0)
_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


class Exchange:
    """What was asked for the request that is being answered; its operations say what they are about."""

    def __init__(self, faults: FaultRegistry, links: Links, request: web.Request) -> None:
        self.links = links
        self._faults = faults
        self._request = request
        self._bends: list[Fault] = []
        self._lost: GcsError | None = None
        self._reset = False
        self._stalled = False

    @property
    def bends(self) -> bool:
        """Whether bodies have to pass `bent`."""
        return bool(self._bends)

    def meet(self, method: str, resource: str) -> None:
        """Take the faults that one operation of the request meets; raises GcsError for one in its place."""
        bucket, _, name = resource.partition("/")
        facts = {"method": method, "resource": resource, "bucket": bucket, "object": name, "api": "storage"}
        refusal = self._faults.fire(*REFUSALS, **facts)
        if refusal:
            raise asked_error(refusal, method, resource)
        if self._faults.fire("gcs-reset", **facts):
            self.break_off()
            raise GcsError(499, "The connection was reset.")
        for kind in BENT:
            bend = self._faults.fire(kind, **facts)
            if bend and bend.id not in (one.id for one in self._bends):
                self._bends.append(bend)
        lost = self._faults.fire(*LOST_ANSWERS, **facts, when="after")
        if lost:
            self._lost = asked_error(lost, method, resource)
        self._reset |= self._faults.fire("gcs-reset", **facts, when="after") is not None

    async def bent(self, chunks: AsyncIterator[bytes], *, up: bool) -> AsyncIterator[bytes]:
        """Pass the bytes of a body on as the faults want them; cuts the connection where they say so."""
        at = 0
        async for chunk in chunks:
            for piece in self._pieces(chunk, at):
                await self._hold_up(at, len(piece), up=up)
                yield self._corrupted(piece, at)
                at += len(piece)
                if any(one.kind == "gcs-cut" and at >= one["bytes"] for one in self._bends):
                    await self._cut(up=up)

    async def settle(self) -> None:
        """Let the answer wait as long as it was asked to, before its first byte."""
        for fault in self._bends:
            if fault.kind == "gcs-slow" and fault["latency"]:
                await asyncio.sleep(fault["latency"])
        await self._hold_up(0, 0, up=False)

    def lost_answer(self) -> GcsError | None:
        """Return the error in place of the answer, if there is one; a reset breaks the connection off."""
        if self._reset:
            self.break_off()
            return GcsError(499, "The connection was reset.")
        return self._lost

    def break_off(self) -> None:
        """Reset the connection."""
        transport = self._request.transport
        if transport is not None:
            raw = transport.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            transport.abort()

    def _pieces(self, chunk: bytes, at: int) -> Iterator[bytes]:
        """The chunk, split where a fault begins to work, and into what a slow link can send smoothly."""
        limits = [fault[LIMITS[fault.kind]] for fault in self._bends if fault.kind in LIMITS]
        largest = min((self.links.smooth(fault) for fault in self._bends), default=len(chunk)) or len(chunk)
        while chunk:
            ahead = [limit - at for limit in limits if limit > at]
            size = min([len(chunk), largest, *ahead])
            yield chunk[:size]
            chunk, at = chunk[size:], at + size

    async def _hold_up(self, at: int, size: int, *, up: bool) -> None:
        for fault in self._bends:
            if fault.kind == "gcs-stall" and not self._stalled and at >= fault["at"]:
                self._stalled = True
                await while_in_force(self._faults, fault.id, fault["seconds"] or None)
            elif fault.kind == "gcs-slow" and size:
                await self.links.carry(fault, size, up=up)

    def _corrupted(self, piece: bytes, at: int) -> bytes:
        for fault in self._bends:
            if fault.kind == "gcs-corrupt" and at <= fault["at"] < at + len(piece):
                here = fault["at"] - at
                piece = piece[:here] + bytes([piece[here] ^ 0xFF]) + piece[here + 1 :]
        return piece

    async def _cut(self, *, up: bool) -> None:
        """Upwards nothing more is read; downwards what was sent arrives, and then the connection ends."""
        transport = self._request.transport
        if up:
            self.break_off()
        elif transport is not None:
            transport.close()
        raise ConnectionResetError("the connection was cut")


def current() -> Exchange | None:
    """Return the exchange of the request that is being answered, if faults may touch it."""
    return _current.get()


@contextmanager
def exchange_of(faults: FaultRegistry, links: Links, request: web.Request) -> Iterator[Exchange | None]:
    """Make a request's exchange the current one; there is none while there are no faults."""
    token = _current.set(Exchange(faults, links, request) if faults.in_force(*ALL) else None)
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def refuse_if_asked(faults: FaultRegistry, method: str, resource: str) -> None:
    """Note an operation, and raise the fault that was asked for in its place, if one was.

    `method` is a name of the audit log (`storage.objects.get`), `resource` is `BUCKET` or `BUCKET/OBJECT`.
    """
    if faults.events is not None:
        faults.events.note("request", method.removeprefix(_SERVICE), resource, service="storage")
    exchange = _current.get()
    if exchange is not None:
        exchange.meet(method, resource)


def received(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return an upload's bytes as the faults let them through."""
    exchange = _current.get()
    return exchange.bent(chunks, up=True) if exchange is not None and exchange.bends else chunks
