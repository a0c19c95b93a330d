"""One connection of the worker's program: what services may answer, and what is no answer."""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tpuctl.worker.connection import Answer, AnswerError, Connection

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    """Ours, and the service's."""
    near, far = socket.socketpair()
    near.settimeout(60)
    with far, closing(Connection(near, "example.com:8080")) as connection:
        yield connection, far


def answered(
    ends: tuple[Connection, socket.socket], *pieces: bytes, method: str = "GET", data: bytes | None = None
) -> Answer:
    """Return the answer to a request of these pieces, after which the service closes the stream."""
    connection, far = ends
    for piece in pieces:
        far.sendall(piece)
    far.shutdown(socket.SHUT_WR)
    return connection.exchange(method, "/a?b=c", data, {"A": "b"})


@pytest.mark.parametrize(
    ("answer", "body", "is_reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata rest", b"data", True),
        (b"HTTP/1.1 200\r\ncontent-length:4\r\n\r\ndata", b"data", True),
        (b"HTTP/1.1 200 OK\nContent-Length: 4\n\ndata", b"data", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", b"", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ndata", b"data", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\ndata", b"data", True),
        (b"HTTP/1.1 200 OK\r\n\r\nall to the end", b"all to the end", False),
        (CHUNKED + b"3;a=b\r\ndat\r\n1\r\na\r\n0\r\nT: x\r\n\r\n", b"data", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata", b"data", True),
    ],
    ids=["length", "terse", "lines", "none", "close", "1.0", "1.0 kept", "no length", "chunks", "100"],
)  # fmt: skip
def test_every_way_to_say_how_long_an_answer_is(ends, answer: bytes, body: bytes, is_reusable: bool) -> None:
    result = answered(ends, answer)
    assert (result.body, ends[0].is_reusable) == (body, is_reusable)
    assert result.status in (200, 204)


def test_an_answer_has_the_headers_that_the_worker_reads(ends) -> None:
    head = b"HTTP/1.1 412 No\r\ndate: today\r\nX-Goog-Generation: 17\r\nContent-Length: 2\r\n"
    assert answered(ends, head + b"\r\n", b"no") == (412, "today", b"no", "17")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ndata",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\ndata",
        b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\ndata",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        CHUNKED + b"4\r\nda",
        CHUNKED + b"long\r\ndata",
        ENDLESS,
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000,
    ],
    ids=["SSH", "no status", "cut", "-1", "words", "head", "cut chunk", "chunk", "headers", "long header"],
)
def test_what_is_no_whole_answer_is_an_error(ends, answer: bytes) -> None:
    with pytest.raises(AnswerError):
        answered(ends, answer)


def test_an_answer_has_200_lines_of_headers_at_most(ends) -> None:
    length, end = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n", b"\r\ndata"
    assert answered(ends, length + b"A: b\r\n" * 198 + end).body == b"data"


def test_an_answer_with_more_headers_is_an_error(ends) -> None:
    length, end = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n", b"\r\ndata"
    with pytest.raises(AnswerError, match="more than 200 headers"):
        answered(ends, length + b"A: b\r\n" * 200 + end)


def test_a_service_that_closes_before_it_answers_has_an_error_of_its_own(ends) -> None:
    """By which a request is sent again over another connection."""
    with pytest.raises(ConnectionResetError):
        answered(ends)


@pytest.mark.parametrize("data", [b"data", b"d" * 200_000])
def test_a_request_is_one_of_http(ends, data: bytes) -> None:
    ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    ends[0]._stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    answered(ends, b"HTTP/1.1 204 No Content\r\n\r\n", method="POST", data=data)
    ends[0].close()
    with ends[1].makefile("rb") as reader:
        assert reader.readline() == b"POST /a?b=c HTTP/1.1\r\n"
        headers = http.client.parse_headers(reader)
        body = reader.read()
    assert dict(headers) == {
        "Host": "example.com:8080", "Accept-Encoding": "identity", "A": "b", "Content-Length": str(len(data)),
    }  # fmt: skip
    assert body == data


class Pieces:
    """A stream that notes what is sent at once, and answers."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(b"HTTP/1.1 204 No Content\r\n\r\n")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("size", "count"), [(5, 1), (65_536, 1), (65_537, 2)])
def test_a_small_body_is_sent_at_once_with_its_head_and_a_large_one_is_not_copied(
    size: int, count: int
) -> None:
    stream, data = Pieces(), b"d" * size
    Connection(stream, "example.com").exchange("POST", "/", data, {})  # type: ignore[arg-type]
    assert len(stream.sent) == count
    assert b"".join(stream.sent).endswith(b"\r\n\r\n" + data)


@pytest.mark.parametrize("value", ["a\r\nHost: other", "a\nb"])
def test_no_value_adds_a_header(ends, value: str) -> None:
    with pytest.raises(ValueError, match="several lines"):
        ends[0].exchange("GET", "/", None, {"A": value})
    ends[0].close()
    assert ends[1].recv(1) == b""
