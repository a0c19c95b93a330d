"""Repair of the HTTP framing that TensorFlow's curl sends, which strict parsers refuse.

Its POST has `Transfer-Encoding: identity` beside Content-Length; its PUT has both `chunked` and
Content-Length, where chunked wins (RFC 9112, 6.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST_LINE = 64 << 10
"""Bytes of a request's head, or of one line in a chunked body, before the stream is passed on unread."""

_IDENTITY = re.compile(rb"\r\ntransfer-encoding:[ \t]*identity[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[0-9a-f]+(?=[;\r \t])", re.IGNORECASE)


class FramingRepair:
    """Follows one connection's requests and drops the headers at fault; bodies pass untouched."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0
        self._step: Callable[[], bytes | None] = self._head

    def feed(self, data: bytes) -> bytes:
        """Take the bytes received and return those to pass on."""
        if self._step == self._body and not self._buffer and len(data) <= self._left:
            self._left -= len(data)  # the bulk of an upload: not even copied
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
        if _CHUNKED.search(head):
            self._step = self._chunk_size
            return _LENGTH.sub(b"", head)
        length = _LENGTH.search(head)
        if length is not None and int(length[1]):
            self._left, self._step = int(length[1]), self._body
        return head

    def _body(self) -> bytes | None:
        return self._pass_on(self._head)

    def _chunk(self) -> bytes | None:
        return self._pass_on(self._chunk_size)

    def _chunk_size(self) -> bytes | None:
        line = self._take_through(b"\r\n")
        if line is None:
            return self._give_up()
        found = _CHUNK_SIZE.match(line)
        size = int(found[0], 16) if found else 0
        if found is None:
            self._step = self._unread
        elif size:
            self._left, self._step = size + len(b"\r\n"), self._chunk
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
        if not self._left:
            self._step = then
            return b""
        piece, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
        self._left -= len(piece)
        return piece or None

    def _take_through(self, mark: bytes) -> bytes | None:
        at = self._buffer.find(mark)
        if at < 0:
            return None
        end = at + len(mark)
        taken, self._buffer = self._buffer[:end], self._buffer[end:]
        return taken
