"""Repairs the HTTP framing that TensorFlow's curl sends, which strict parsers refuse.

Its POST has `Transfer-Encoding: identity` beside Content-Length; its PUT has both `chunked` and
Content-Length, where chunked wins (RFC 9112, 6.3).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from tpuctl.sim.network.tunnels import Connections

LONGEST_LINE = 64 << 10
"""Bytes of a request's head, or of one line in a chunked body; longer ones are passed on without a look."""

_IDENTITY = re.compile(rb"\r\ntransfer-encoding:[ \t]*identity[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*(?=\r\n)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[0-9a-f]+(?=[;\r \t])", re.IGNORECASE)


class FramingRepair:
    """Follows one connection's requests and drops the wrong headers; bodies pass untouched."""

    def __init__(self) -> None:
        self._buffer = b""
        self._remaining = 0
        self._step: Callable[[], bytes | None] = self._head

    def feed(self, data: bytes) -> bytes:
        """Take the bytes received and return those to pass on."""
        if self._step == self._body and not self._buffer and len(data) <= self._remaining:
            self._remaining -= len(data)  # the bulk of an upload: not even copied
            return data
        self._buffer += data
        out = []
        while (piece := self._step()) is not None:
            out.append(piece)
        return b"".join(out)

    def _head(self) -> bytes | None:
        head = self._take_through(b"\r\n\r\n")
        if head is None:
            return self._give_up()
        head = _IDENTITY.sub(b"", head)
        if _UPGRADE.search(head):
            self._step = self._unread
            return head
        if _CHUNKED.search(head):
            self._step = self._chunk_size
            return _LENGTH.sub(b"", head)
        length = _LENGTH.search(head)
        if length is not None and int(length[1]):
            self._remaining, self._step = int(length[1]), self._body
        return head

    def _body(self) -> bytes | None:
        return self._pass_on(self._head)

    def _chunk(self) -> bytes | None:
        return self._pass_on(self._chunk_size)

    def _chunk_size(self) -> bytes | None:
        line = self._take_through(b"\r\n")
        if line is None:
            return self._give_up()
        match = _CHUNK_SIZE.match(line)
        size = int(match[0], 16) if match else 0
        if match is None:
            self._step = self._unread
        elif size:
            self._remaining, self._step = size + len(b"\r\n"), self._chunk
        else:
            self._step = self._trailer
        return line

    def _trailer(self) -> bytes | None:
        line = self._take_through(b"\r\n")
        if line == b"\r\n":
            self._step = self._head
        return line if line is not None else self._give_up()

    def _unread(self) -> bytes | None:
        rest, self._buffer = self._buffer, b""
        return rest or None

    def _give_up(self) -> bytes | None:
        if len(self._buffer) <= LONGEST_LINE:
            return None
        self._step = self._unread
        return self._unread()

    def _pass_on(self, then: Callable[[], bytes | None]) -> bytes | None:
        if not self._remaining:
            self._step = then
            return b""
        piece, self._buffer = self._buffer[: self._remaining], self._buffer[self._remaining :]
        self._remaining -= len(piece)
        return piece or None

    def _take_through(self, mark: bytes) -> bytes | None:
        at = self._buffer.find(mark)
        if at < 0:
            return None
        end = at + len(mark)
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return text


class RepairedFraming(asyncio.Protocol):
    """Stands between TLS and the protocol of an HTTP server; keeps early bytes until TLS is up."""

    def __init__(self, server: asyncio.Protocol, connections: Connections) -> None:
        self._server = server
        self._connections = connections
        self._repair = FramingRepair()
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self._transport)
        self._server.connection_made(transport)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:  # the request can come in one packet with the end of the handshake
            self._early += data
        elif repaired := self._repair.feed(data):
            self._server.data_received(repaired)

    def eof_received(self) -> bool | None:
        return self._server.eof_received() if self._transport is not None else None

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._connections.discard(self._transport)
            self._server.connection_lost(error)

    def pause_writing(self) -> None:
        self._server.pause_writing()

    def resume_writing(self) -> None:
        self._server.resume_writing()
