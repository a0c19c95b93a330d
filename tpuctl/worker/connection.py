"""One connection that speaks HTTP/1.1: the standard library's takes as long to import as Python to start."""

from __future__ import annotations

import socket
from typing import Dict, Iterator, Mapping, NamedTuple, Optional

LONGEST_LINE = 65_536
MOST_HEADERS = 200
PIECE = 1 << 16
"""Bytes up to which a request travels in one piece with its headers."""
NO_BODY = (204, 304)


class AnswerError(OSError):
    """What came is no answer, or only the beginning of one."""


class Answer(NamedTuple):
    """A whole response."""

    status: int
    date: str
    """Its header Date; empty without one."""
    body: bytes
    generation: str = ""
    """Of the object that it is; empty for another answer."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


class Connection:
    """A connection to one service, for one request at a time."""

    def __init__(self, stream: socket.socket, host: str) -> None:
        """Take an open stream, and the `host` for the header of this name."""
        self._stream = stream
        self._reader = stream.makefile("rb")
        self._host = host
        self.is_reusable = True
        """Whether it takes another request after the last answer."""

    def close(self) -> None:
        """Close the stream."""
        self._reader.close()
        self._stream.close()

    def exchange(self, method: str, target: str, data: Optional[bytes], headers: Mapping[str, str]) -> Answer:
        """Send a request and return the answer, whatever its status; raises OSError.

        That is a ConnectionError where the service has closed the connection before it answered.
        """
        fields = {"Host": self._host, "Accept-Encoding": "identity", **headers}
        if data is not None or method == "POST":
            fields["Content-Length"] = str(len(data or b""))
        self._send(head("%s %s HTTP/1.1" % (method, target), fields), data or b"")
        status, answered = self._head()
        while 100 <= status < 200:
            status, answered = self._head()
        body = b"" if status in NO_BODY else self._body(answered)
        return Answer(status, answered.get("date", ""), body, answered.get("x-goog-generation", ""))

    def _send(self, head: bytes, data: bytes) -> None:
        if len(data) <= PIECE:
            self._stream.sendall(head + data)
        else:
            self._stream.sendall(head)
            self._stream.sendall(data)

    def _head(self) -> "tuple[int, Dict[str, str]]":
        """Read status and headers; the names of these become lower case."""
        first = self._reader.readline(LONGEST_LINE)
        if not first:
            raise ConnectionResetError("the service closed the connection without an answer")
        status = status_of(first)
        headers: Dict[str, str] = {}
        for line in self._lines():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        is_old = first.startswith(b"HTTP/1.0")
        wanted = headers.get("connection", "close" if is_old else "keep-alive").lower()
        self.is_reusable = "close" not in wanted
        return status, headers

    def _lines(self) -> Iterator[str]:
        for _ in range(MOST_HEADERS):
            line = self._line()
            if not line:
                return
            yield line
        raise AnswerError("the answer has more than %d headers" % MOST_HEADERS)

    def _line(self) -> str:
        line = self._reader.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise AnswerError("the answer ends in its headers, or has too long ones")
        return line.decode("latin-1").strip()

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "identity").lower() != "identity":
            return b"".join(self._chunks())
        if "content-length" in headers:
            return self._read(_number(headers["content-length"], 10))
        self.is_reusable = False
        return self._reader.read()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = _number(self._line().partition(";")[0].strip(), 16)
            if not size:
                break
            yield self._read(size)
            self._line()
        for _ in self._lines():
            pass

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise AnswerError("the answer has %d bytes of %d" % (len(data), size))
        return data


def head(first: str, fields: Mapping[str, str]) -> bytes:
    """Return the first line of a request with its headers; raises ValueError for a line in one of them."""
    lines = [first, *("%s: %s" % field for field in fields.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of the request has several lines")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def status_of(line: bytes) -> int:
    """Return the status in the first line of an answer; raises AnswerError."""
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise AnswerError("no answer of HTTP/1.1: %r" % line[:80])
    return int(words[1])


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise AnswerError("the answer has no length: %r" % text[:80])
    return number
