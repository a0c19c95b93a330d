"""Requests the bytes of objects over the client's own connections, without the client's copies of them."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote, urlsplit

import requests
import urllib3
from google.api_core.exceptions import from_http_status
from google.auth.transport.requests import Request
from requests.adapters import HTTPAdapter

from tpuctl.cloud.request_log import logged

if TYPE_CHECKING:
    from google.cloud import storage


import io
import re
import socket
from collections.abc import Mapping

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
_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401
_GZIP = b"\x1f\x8b"
_LONGEST_MESSAGE = 10_000
"""Bytes of a refusal that are read."""


class Listed(Protocol):
    """An object as it was listed."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def generation(self) -> int: ...


class BrokenOffError(Exception):
    """A request got no answer, or not all of it: worth another one."""


class Body:
    """The bytes of an answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def read_all(self) -> bytes:
        """Return all bytes, unpacked if they came packed; raises BrokenOffError."""
        with _broken_off():
            data = self._answer.read()
        return gzip.decompress(data) if data[:2] == _GZIP else data

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer than `size` only at the end; raises BrokenOffError."""
        with _broken_off():
            return self._answer.read(size)

    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes into a buffer and return their number, 0 at the end; raises BrokenOffError."""
        with _broken_off():
            return self._answer.readinto(buffer)


class MediaRequests:
    """Requests for the bytes of one bucket's objects, from any thread."""

    def __init__(self, client: storage.Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._lock = threading.Lock()

    @contextmanager
    def open(self, item: Listed, start: int, end: int) -> Iterator[Body]:
        """Yield the stored bytes from `start` to before `end` of one generation of an object.

        Raises BrokenOffError where another request may succeed, else an error of google.api_core.
        """
        partial = start > 0 or end < item.size
        selection = {"Range": f"bytes={start}-{end - 1}"} if partial else {}
        path = f"/download/storage/v1/b/{self._bucket}/o/{quote(item.name, safe='')}"
        with self._authorized(f"{path}?alt=media&generation={item.generation}", selection) as answer:
            yield _body(answer, partial=partial)

    def fetch(self, item: Listed, start: int, end: int) -> bytes:
        """Return the stored bytes from `start` to before `end` of a generation, a few megabytes at most.

        Raises as `open` does, with less CPU time for each.
        """
        partial = start > 0 or end < item.size
        selection = {"Range": f"bytes={start}-{end - 1}"} if partial else {}
        path = f"/download/storage/v1/b/{self._bucket}/o/{quote(item.name, safe='')}"
        target, headers = f"{path}?alt=media&generation={item.generation}", self._headers()
        try:
            with _broken_off():
                status, data = logged(
                    "GET",
                    f"{self._origin}{target}",
                    lambda: self._connections.fetch(target, headers | selection, end - start),
                    itemgetter(0),
                )
        except BrokenOffError as error:
            if not isinstance(error.__cause__, UnusualAnswerError):
                raise
            status, data = 0, b""
        if status == (206 if partial else 200) and len(data) == end - start:
            return data
        return self._opened(item, start, end)

    def _opened(self, item: Listed, start: int, end: int) -> bytes:
        """Return bytes by `open`, which renews tokens and tells errors apart."""
        with self.open(item, start, end) as body:
            data = body.read(end - start)
            if len(data) < end - start or body.read(1):
                raise BrokenOffError
            return data

    def read_json(self, path: str) -> bytes:
        """Return what the JSON API answers at a path below the bucket; raises as `open` does."""
        with self._authorized(f"/storage/v1/b/{self._bucket}{path}", {}) as answer:
            body = _body(answer, partial=False)
            return body.read_all()

    @contextmanager
    def _authorized(self, target: str, selection: dict[str, str]) -> Iterator[Answer]:
        """Yield the answer to a GET; a token that is refused is renewed once."""
        headers = self._headers()
        with self._get(target, headers | selection) as answer:
            if answer.status != _UNAUTHORIZED:
                yield answer
                return
        with self._get(target, self._headers(refused=headers) | selection) as answer:
            yield answer

    @contextmanager
    def _get(self, target: str, headers: dict[str, str]) -> Iterator[Answer]:
        with ExitStack() as stack:
            with _broken_off():
                answer = logged(
                    "GET",
                    f"{self._origin}{target}",
                    lambda: stack.enter_context(self._connections.get(target, headers)),
                    attrgetter("status"),
                )
            yield answer

    def _headers(self, refused: dict[str, str] | None = None) -> dict[str, str]:
        """Return headers with a token, another one than that of `refused`."""
        credentials = self._client._credentials
        headers = {"Accept-Encoding": "gzip"}  # what is stored compressed comes as it is
        with self._lock:
            credentials.before_request(self._refresh, "GET", self._origin, headers)
            if headers == refused:  # else another thread has renewed it
                credentials.refresh(self._refresh)
                credentials.before_request(self._refresh, "GET", self._origin, headers)
        return headers

    @cached_property
    def _refresh(self) -> Request:
        return Request()

    @cached_property
    def _origin(self) -> str:
        parts = urlsplit(self._client.api_endpoint)
        return f"{parts.scheme}://{parts.netloc}"

    @cached_property
    def _connections(self) -> MediaConnections:
        """The connections of the client's session, with its proxies and certificates."""
        session: requests.Session = self._client._http
        settings = session.merge_environment_settings(self._origin, {}, True, None, None)
        request = requests.Request("GET", self._origin).prepare()
        adapter = cast("HTTPAdapter", session.get_adapter(self._origin))
        pool = adapter.get_connection_with_tls_context(
            request, settings["verify"], proxies=settings["proxies"], cert=settings["cert"]
        )
        return MediaConnections(pool)


def _body(answer: Answer, *, partial: bool) -> Body:
    """Return the bytes that were asked for; raises as `open` does if the answer has others."""
    if answer.status == (206 if partial else 200):
        return Body(answer)
    with _broken_off():
        message = answer.read(_LONGEST_MESSAGE).decode("utf-8", "replace")
    if answer.status in _RETRIABLE or answer.status < 400:
        raise BrokenOffError from _refusal(answer.status, message)
    raise _refusal(answer.status, message)


def _refusal(status: int, message: str) -> Exception:
    try:
        message = str(json.loads(message)["error"]["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # a download is refused in plain text
    error: Exception = from_http_status(status, message)  # type: ignore[no-untyped-call]
    return error


@contextmanager
def _broken_off() -> Iterator[None]:
    """Turn errors of the connection into BrokenOffError."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        raise BrokenOffError from error


# Sends GETs over the connections of a urllib3 pool, and reads the heads of their answers line by line.
#
# urllib3's own way parses each head as an e-mail's and takes three times the CPU time: most of what a small
# object costs.


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
