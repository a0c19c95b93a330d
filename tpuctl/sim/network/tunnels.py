"""Both ends of a connection that goes through the proxy: relays of a tunnel, and the way to a server here."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from tpuctl.sim.network.framing_fix import FramingRepair


class Register(Protocol):
    """Who has to know which connections are open, to cut them in the end."""

    def track(self, transport: asyncio.Transport) -> None: ...

    def forget(self, transport: asyncio.Transport) -> None: ...


class Relay(asyncio.Protocol):
    """One end of a tunnel: what arrives goes to `peer`, no faster than the peer takes it."""

    def __init__(
        self, peer: asyncio.Transport, register: Register, transport: asyncio.Transport | None = None
    ) -> None:
        self._peer = peer
        self._register = register
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._register.track(self._transport)

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def eof_received(self) -> bool:
        if self._peer.can_write_eof() and not self._peer.is_closing():
            self._peer.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._peer.close()
        if self._transport is not None:
            self._register.forget(self._transport)

    def pause_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()


class Repaired(asyncio.Protocol):
    """Stands between TLS and an HTTP server, repairs the framing, and waits until both are ready."""

    def __init__(self, inner: asyncio.Protocol, register: Register) -> None:
        self._inner = inner
        self._register = register
        self._repair = FramingRepair()
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._register.track(self._transport)
        self._inner.connection_made(transport)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:  # the request can come in one packet with the end of the handshake
            self._early += data
        elif repaired := self._repair.feed(data):
            self._inner.data_received(repaired)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._register.forget(self._transport)
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
