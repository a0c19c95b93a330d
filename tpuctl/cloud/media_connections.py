"""Sends GETs over the connections of a urllib3 pool, and reads the heads of their answers line by line.

urllib3's own way parses each head as an e-mail's and takes three times the CPU time: most of what a small
object costs.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import urllib3
from urllib3.connection import HTTPConnection

CONNECT_TIMEOUT, READ_TIMEOUT = 15, 60
"""Seconds to connect, and between two blocks."""
_LONGEST_LINE, _MOST_FIELDS = 65_536, 100
"""Limits of a head, those of http.client."""
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?\r?\n")
_FIELD = re.compile(rb"\r\n([a-z-]+):[ \t]*([^\r\n]*)")
"""A field of a head in small letters."""
_BLOCK = 1 << 16
_UNSAFE = re.compile(r"[\r\n\0]")


class Answer(http.client.HTTPResponse):
    """An answer to a GET, whose body is read as http.client does."""

    def begin(self) -> None:
        """Read the head; raises http.client.HTTPException."""
        minor, status = _status(self.fp)
        fields = _fields(self.fp)
        while status == http.client.CONTINUE:
            minor, status = _status(self.fp)
            fields = _fields(self.fp)
        self.version, self.code, self.status = 10 + minor, status, status
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = fields.get("content-length", "")
        self.length = int(length) if length.isascii() and length.isdigit() and not self.chunked else None
        is_kept = minor == 1 and "close" not in fields.get("connection", "").lower()
        self.will_close = not is_kept or (self.length is None and not self.chunked)


class MediaConnections:
    """GETs over a pool's connections, from any thread."""

    def __init__(self, pool: urllib3.HTTPConnectionPool) -> None:
        self._pool = pool
        self._host = pool.host if pool.port is None else f"{pool.host}:{pool.port}"

    def fetch(self, target: str, headers: Mapping[str, str], size: int) -> tuple[int, bytes]:
        """Return the status and the body of an answer to a GET, whose body will have `size` bytes, or refuse.

        In few steps: for small objects by the thousand. Of a refusal some bytes come. Raises as `get`.
        """
        connection = cast("HTTPConnection", self._pool._get_conn())
        is_kept = False
        try:
            self._connect(connection)
            stream: socket.socket = connection.sock
            stream.sendall(self._head(target, headers))
            head, begin = _received_head(stream)
            fields = dict(_FIELD.findall(head.lower()))
            status = _STATUS.match(head)
            length = fields.get(b"content-length", b"")
            if not status or not length.isdigit() or b"transfer-encoding" in fields:
                raise UnusualAnswerError
            if int(length) != size:
                return int(status[2]), begin + stream.recv(_BLOCK) if len(begin) < int(length) else begin
            body = _received(stream, begin, size)
            is_kept = status[1] == b"1" and fields.get(b"connection", b"") != b"close"
            return int(status[2]), body
        finally:
            if not is_kept:
                connection.close()
            self._pool._put_conn(connection)

    def _head(self, target: str, headers: Mapping[str, str]) -> bytes:
        lines = [f"GET {target} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any(map(_UNSAFE.search, lines)):
            raise ValueError("a header has several lines")
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    @contextmanager
    def get(self, target: str, headers: Mapping[str, str]) -> Iterator[Answer]:
        """Yield the answer to a GET; the connection is kept if all of the answer is read.

        Raises urllib3.exceptions.HTTPError, http.client.HTTPException, OSError; ValueError for a header of
        several lines.
        """
        head = self._head(target, headers)
        connection = cast("HTTPConnection", self._pool._get_conn())
        is_kept = False
        try:
            self._connect(connection)
            connection.send(head)
            with Answer(connection.sock, method="GET") as answer:
                answer.begin()
                yield answer
                is_kept = answer.isclosed() and not answer.will_close
        finally:
            if not is_kept:
                connection.close()
            self._pool._put_conn(connection)

    def _connect(self, connection: HTTPConnection) -> None:
        """Connect as `urlopen` does: by the user's proxy, to a server with a certificate that is verified."""
        if not connection.is_closed:
            return
        connection.timeout = CONNECT_TIMEOUT
        if self._pool.proxy and self._pool.scheme == "https":
            self._pool._prepare_proxy(connection)
        self._pool._validate_conn(connection)
        if connection.is_closed:
            connection.connect()
        connection.sock.settimeout(READ_TIMEOUT)


class UnusualAnswerError(http.client.HTTPException):
    """An answer whose body has no length: `get` reads it."""


def _received_head(stream: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of an answer, and what came of its body with it; raises http.client.HTTPException."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        more = stream.recv(_BLOCK)
        if not more:
            raise http.client.RemoteDisconnected("the connection was closed without an answer")
        data += more
        if len(data) > 2 * _LONGEST_LINE:
            raise http.client.LineTooLong("header line")
    return data[: end + 2], data[end + 4 :]


def _received(stream: socket.socket, begin: bytes, size: int) -> bytes:
    """Return a body of `size` bytes, of which the beginning is there."""
    if len(begin) > size:
        raise http.client.HTTPException("more bytes than the head says")
    body = bytearray(size)
    body[: len(begin)] = begin
    view, at = memoryview(body), len(begin)
    while at < size:
        received = stream.recv_into(view[at:])
        if not received:
            raise http.client.IncompleteRead(b"", size - at)
        at += received
    return bytes(body)


def _status(stream: io.BufferedIOBase) -> tuple[int, int]:
    """Return the minor version of HTTP and the status."""
    line = stream.readline(_LONGEST_LINE + 1)
    if not line:
        raise http.client.RemoteDisconnected("the connection was closed without an answer")
    if match := _STATUS.fullmatch(line):
        return int(match[1]), int(match[2])
    raise http.client.BadStatusLine(repr(line[:100]))


def _fields(stream: io.BufferedIOBase) -> dict[str, str]:
    """Return the fields of a head by their names in small letters; of several the last one counts."""
    fields: dict[str, str] = {}
    for _ in range(_MOST_FIELDS + 1):
        line = stream.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise http.client.LineTooLong("header line")
        if not line:
            raise http.client.IncompleteRead(b"")
        if line in (b"\r\n", b"\n"):
            return fields
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.lower()] = value.strip()
    raise http.client.HTTPException("more header fields than are read")
