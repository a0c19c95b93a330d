"""The framing of requests that TensorFlow's curl sends, byte by byte, and what passes untouched."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl.sim.network import proxy
from tpuctl.sim.network.proxy import FramingRepair, RepairedFraming

CHUNKED_BODY = b"5\r\nhello\r\nA;ext=1\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
PLAIN = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
REQUESTS = {
    # what is sent: what is passed on
    "without a body": (PLAIN, PLAIN),
    "with a length": (
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
    ),
    "with a length of nothing": (
        b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    ),
    "identity": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    ),
    "identity in other letters": (
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTRANSFER-encoding:\tIdentity \r\nHost: a\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nHost: a\r\n\r\nabc",
    ),
    "identity in a body": (
        b"POST / HTTP/1.1\r\nContent-Length: 33\r\n\r\n\r\nTransfer-Encoding: identity\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 33\r\n\r\n\r\nTransfer-Encoding: identity\r\n\r\n",
    ),
    "chunked": (
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_BODY,
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_BODY,
    ),
    "chunked with a length": (
        b"PUT / HTTP/1.1\r\ncontent-length: 99\r\ntransfer-encoding: gzip, chunked\r\n\r\n" + CHUNKED_BODY,
        b"PUT / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n" + CHUNKED_BODY,
    ),
    "chunked without a trailer": (
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1f \r\n"
        + b"\r" * 31
        + b"\r\n0\r\n\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1f \r\n" + b"\r" * 31 + b"\r\n0\r\n\r\n",
    ),
}
FOLLOWING = REQUESTS["identity"]


def fed(*pieces: bytes) -> bytes:
    repair = FramingRepair()
    return b"".join(repair.feed(piece) for piece in pieces)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_wrong_headers_are_dropped_however_the_bytes_come(name: str, size: int) -> None:
    """And the request that follows on the connection is repaired as well."""
    sent, passed = (first + second for first, second in zip(REQUESTS[name], FOLLOWING, strict=True))
    pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
    assert fed(*pieces) == passed


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_may_come_together(name: str) -> None:
    sent, passed = REQUESTS[name]
    assert fed(sent * 3 + FOLLOWING[0]) == passed * 3 + FOLLOWING[1]


def test_a_body_passes_at_once_as_it_comes() -> None:
    repair = FramingRepair()
    head = b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n"
    body = b"0123456"
    assert repair.feed(head + b"ab") == head + b"ab"
    assert repair.feed(body) == body
    assert repair.feed(b"c" + FOLLOWING[0]) == b"c" + FOLLOWING[1]


def test_a_body_ends_at_its_last_byte() -> None:
    repair = FramingRepair()
    head = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n"
    assert repair.feed(head) == head
    assert repair.feed(b"abc") == b"abc"
    assert repair.feed(FOLLOWING[0]) == FOLLOWING[1]


def test_a_head_is_kept_until_it_is_complete() -> None:
    repair = FramingRepair()
    assert repair.feed(PLAIN[:-1]) == b""
    assert repair.feed(PLAIN[-1:]) == PLAIN


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nupgrade:\tWebSocket \r\nHost: a\r\n\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5x\r\n",
    ],
)
def test_what_follows_is_not_looked_at_where_it_is_no_request(first: bytes) -> None:
    assert fed(first + FOLLOWING[0]) == first + FOLLOWING[0]
    assert fed(first, FOLLOWING[0], b"", FOLLOWING[0]) == first + FOLLOWING[0] * 2


def test_a_request_to_upgrade_to_something_else_is_a_request() -> None:
    first = b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n"
    assert fed(first + FOLLOWING[0]) == first + FOLLOWING[1]


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
)
def test_a_line_that_does_not_end_is_passed_on_once_it_is_too_long(
    monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(proxy, "LONGEST_LINE", 100)
    repair = FramingRepair()
    assert repair.feed(begun) == begun
    assert repair.feed(b"x" * 100) == b""
    assert repair.feed(b"x") == b"x" * 101
    assert repair.feed(FOLLOWING[0]) == FOLLOWING[0]


class Server(asyncio.Protocol):
    """A protocol that records what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append(transport)

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> bool:
        self.told.append("eof")
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(error)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class TestConnection:
    """Between TLS and an HTTP server."""

    def test_what_comes_before_the_end_of_the_handshake_is_kept(self) -> None:
        server, connections, transport = Server(), set[object](), asyncio.Transport()
        framing = RepairedFraming(server, _as_connections(connections))
        framing.data_received(FOLLOWING[0][:10])
        framing.data_received(FOLLOWING[0][10:])
        assert server.told == []
        framing.connection_made(transport)
        assert (server.told[0], b"".join(server.told[1:])) == (transport, FOLLOWING[1])  # type: ignore[arg-type]
        assert connections == {transport}
        framing.data_received(PLAIN)
        assert server.told[-1] == PLAIN

    def test_a_server_hears_of_no_bytes_where_none_are_passed_on(self) -> None:
        server, transport = Server(), asyncio.Transport()
        framing = RepairedFraming(server, _as_connections(set()))
        framing.connection_made(transport)
        framing.data_received(PLAIN[:5])
        assert server.told == [transport]

    def test_the_rest_is_for_the_server(self) -> None:
        server, connections, transport = Server(), set[object](), asyncio.Transport()
        framing = RepairedFraming(server, _as_connections(connections))
        framing.connection_made(transport)
        framing.pause_writing()
        framing.resume_writing()
        assert framing.eof_received() is True
        error = ConnectionResetError()
        framing.connection_lost(error)
        assert server.told == [transport, "pause", "resume", "eof", error]
        assert connections == set()

    def test_a_handshake_that_fails_is_nothing_to_the_server(self) -> None:
        server = Server()
        framing = RepairedFraming(server, _as_connections(set()))
        framing.data_received(PLAIN)
        assert framing.eof_received() is None
        framing.connection_lost(None)
        assert server.told == []


def _as_connections(transports: set[object]) -> Any:
    return SimpleNamespace(add=transports.add, discard=transports.discard)
