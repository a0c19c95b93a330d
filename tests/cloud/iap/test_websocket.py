"""Tests one WebSocket to the relay, against a peer whose every byte the test decides."""

from __future__ import annotations

import queue
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from tpuctl.cloud.iap import websocket as module
from tpuctl.cloud.iap.frames import Ending, Interruption, Refusal
from tpuctl.cloud.iap.websocket import WebSocket

RELAY = "relay.tunnel.cloudproxy.app"
FULL = 32 << 20
"""Bytes: more than what the buffers of a connection take."""


class Peer:
    """The other end of one connection."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.protocol = ServerProtocol(subprotocols=[RELAY])  # type: ignore[list-item]
        self.received: list[Frame] = []

    def accept(self, also: bytes = b"") -> None:
        """Answer the request, with more bytes in the same packet."""
        while not (events := self.protocol.events_received()):
            self.protocol.receive_data(self.stream.recv(65_536))
        (request,) = events
        assert isinstance(request, Request)
        self.protocol.send_response(self.protocol.accept(request))
        self.stream.sendall(b"".join(self.protocol.data_to_send()) + also)

    def send(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> None:
        """Send a frame."""
        self.stream.sendall(Frame(opcode, data, fin).serialize(mask=False))

    def next_frame(self) -> Frame:
        """Wait for a frame."""
        while not self.received:
            data = self.stream.recv(65_536)
            assert data, "the client has closed the connection"
            self.protocol.receive_data(data)
            self.received += [event for event in self.protocol.events_received() if isinstance(event, Frame)]
        return self.received.pop(0)

    def reset(self) -> None:
        """End the connection as a router does that has forgotten it."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()


class TlsSocket(ssl.SSLSocket):
    """One that has decrypted so many bytes which nobody has read."""

    def __init__(self, decrypted: int) -> None:
        self.decrypted = decrypted

    def pending(self) -> int:
        return self.decrypted


Connect = Callable[[Callable[[Peer], object]], tuple[WebSocket, Peer]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens a connection to a peer that answers the request as a function says."""
    opened: list[WebSocket] = []
    peers = queue.SimpleQueue[Peer]()
    accepted: list[Peer] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def open_one(answer: Callable[[Peer], object]) -> tuple[WebSocket, Peer]:
        def serve() -> None:
            peer = Peer(listener.accept()[0])
            peer.stream.settimeout(60)
            accepted.append(peer)
            answer(peer)
            peers.put(peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            url = f"ws://127.0.0.1:{listener.getsockname()[1]}/v4"
            opened.append(WebSocket(url, {"X-Extra": "yes"}, 60, is_local=True))
        finally:
            thread.join(60)
        return opened[-1], peers.get(timeout=60)

    yield open_one
    for websocket in opened:
        websocket.close()
    for peer in accepted:
        peer.stream.close()
    listener.close()


def arrived(websocket: WebSocket) -> list[tuple[bytes, bool]]:
    """What has arrived, once something has."""
    assert select.select([websocket], [], [], 60)[0]
    return list(websocket.receive())


def test_parts_of_a_message_come_one_by_one_and_the_last_says_so(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    peer.send(Opcode.BINARY, b"ab", fin=False)
    assert arrived(websocket) == [(b"ab", False)]
    peer.send(Opcode.CONT, b"c", fin=False)
    assert arrived(websocket) == [(b"c", False)]
    peer.send(Opcode.CONT, b"d")
    assert arrived(websocket) == [(b"d", True)]
    peer.send(Opcode.TEXT, b"e")
    assert arrived(websocket) == [(b"e", True)]
    assert list(websocket.receive()) == []


@pytest.mark.parametrize(("decrypted", "expected"), [(0, False), (1, True), (500, True)])
def test_what_tls_has_decrypted_is_input_that_the_descriptor_does_not_show(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, decrypted: int, expected: bool
) -> None:
    websocket, _ = connect(Peer.accept)
    assert list(websocket.receive()) == []
    assert not websocket.has_input
    with monkeypatch.context() as patch:
        patch.setattr(websocket, "_socket", TlsSocket(decrypted))
        assert websocket.has_input is expected


def test_a_ping_is_answered_and_is_no_data(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    peer.send(Opcode.PING, b"are you there")
    assert arrived(websocket) == []
    websocket.flush()
    answer = peer.next_frame()
    assert (answer.opcode, answer.data) == (Opcode.PONG, b"are you there")


def test_pings_of_who_reads_no_answer_end_the_tunnel(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_OUTPUT", 10_000)
    websocket, peer = connect(Peer.accept)
    for _ in range(100):
        peer.send(Opcode.PING, b"x" * 125)
    with pytest.raises(Ending, match="the relay sends pings, and reads no answer"):
        deque(iter(lambda: arrived(websocket), None), maxlen=0)


def test_what_is_sent_is_written_by_a_flush(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    assert websocket.output_size == 0
    websocket.send(b"abc")
    websocket.ping()
    assert websocket.output_size > 0
    websocket.flush()
    assert websocket.output_size == 0
    frames = [peer.next_frame(), peer.next_frame()]
    assert [(frame.opcode, frame.data) for frame in frames] == [(Opcode.BINARY, b"abc"), (Opcode.PING, b"")]


def test_a_flush_waits_for_nobody_and_the_rest_follows(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    websocket.send(bytes(FULL))
    websocket.flush()
    assert 0 < websocket.output_size < FULL
    count = 0
    while websocket.output_size:
        count += len(peer.stream.recv(1 << 20))
        websocket.flush()
    while count < FULL:
        count += len(peer.stream.recv(1 << 20))
    assert count > FULL  # with a frame's header


def test_a_goodbye_is_said_once_and_not_in_reply(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    websocket.say_goodbye()
    size = websocket.output_size
    assert size > 0
    websocket.say_goodbye()
    assert websocket.output_size == size
    websocket.flush()
    frame = peer.next_frame()
    assert (frame.opcode, struct.unpack(">H", frame.data[:2])) == (Opcode.CLOSE, (1000,))


def test_what_came_before_a_close_is_yielded_before_its_reason_is_raised(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    close = Frame(Opcode.CLOSE, struct.pack(">H", 4010) + b"read failed")
    data = Frame(Opcode.BINARY, b"last")
    peer.stream.sendall(data.serialize(mask=False) + close.serialize(mask=False))
    peer.stream.close()
    parts = list[bytes]()

    def receive_all() -> None:
        while True:
            assert select.select([websocket], [], [], 60)[0]
            parts.extend(part for part, _ in websocket.receive())

    with pytest.raises(Ending) as raised:
        receive_all()
    assert (parts, raised.value.code, raised.value.reason) == ([b"last"], 4010, "read failed")
    assert raised.value.is_normal


@pytest.mark.parametrize(("code", "kind"), [(1011, Interruption), (4033, Ending)])
def test_a_close_ends_the_tunnel_or_the_connection(connect: Connect, code: int, kind: type[Ending]) -> None:
    websocket, peer = connect(Peer.accept)
    peer.send(Opcode.CLOSE, struct.pack(">H", code))
    with pytest.raises(Ending) as raised:
        arrived(websocket)
    assert (type(raised.value), raised.value.code) == (kind, code)


def test_a_connection_that_ends_without_a_close_is_lost(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    peer.stream.close()
    with pytest.raises(Interruption, match=r"^the connection was lost$"):
        arrived(websocket)


def test_a_reset_is_told_with_its_reason(connect: Connect) -> None:
    websocket, peer = connect(Peer.accept)
    peer.reset()
    with pytest.raises(Interruption, match=r"^the connection was lost \(Connection reset by peer\)$"):
        arrived(websocket)
    websocket.send(b"abc")
    with pytest.raises(Interruption, match=r"^the connection was lost \(Broken pipe\)$"):
        websocket.flush()


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\x82\x7f" + ((2 << 20) + 1).to_bytes(8, "big")],
    ids=["no frame", "too long"],
)
def test_what_is_no_frame_ends_the_tunnel(connect: Connect, data: bytes) -> None:
    websocket, peer = connect(Peer.accept)
    peer.stream.sendall(data)
    with pytest.raises(Ending, match="no WebSocket frame") as raised:
        arrived(websocket)
    assert not isinstance(raised.value, Interruption)


def test_what_came_with_the_answer_is_there_though_nothing_is_to_be_read(connect: Connect) -> None:
    early = Frame(Opcode.BINARY, b"early").serialize(mask=False)
    websocket, _ = connect(lambda peer: peer.accept(early))
    if not websocket.has_input:  # it came as a packet of its own
        assert select.select([websocket], [], [], 60)[0]
    assert list(websocket.receive()) == [(b"early", True)]
    assert not websocket.has_input
    assert not select.select([websocket], [], [], 0)[0]
    assert list(websocket.receive()) == []


def answer(text: bytes) -> Callable[[Peer], object]:
    """Have a peer answer with these bytes, and hang up."""

    def send(peer: Peer) -> None:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += peer.stream.recv(65_536)
        assert b"\r\nX-Extra: yes\r\n" in request
        peer.stream.sendall(text)
        peer.stream.close()

    return send


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 10", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: webs"])
def test_an_answer_that_breaks_off_is_an_interruption(connect: Connect, text: bytes) -> None:
    with pytest.raises(Interruption, match="the connection was lost before it answered"):
        connect(answer(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 8\r\n\r\nnot you.", "not you."),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "Forbidden"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\n\xffno", "\ufffdno"),
    ],
)
def test_a_refusal_has_its_status_and_says_what_its_body_says(
    connect: Connect, text: bytes, reason: str
) -> None:
    with pytest.raises(Refusal) as raised:
        connect(answer(text))
    assert (raised.value.code, raised.value.reason) == (403, reason)


def test_an_answer_of_another_protocol_is_no_relay(connect: Connect) -> None:
    with pytest.raises(Ending, match="what answers is not IAP's relay") as raised:
        connect(answer(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"))
    assert not isinstance(raised.value, Interruption)


def test_a_websocket_that_does_not_speak_the_relays_protocol_is_no_relay(connect: Connect) -> None:
    def accept(peer: Peer) -> None:
        peer.protocol = ServerProtocol(select_subprotocol=lambda protocol, offered: None)
        peer.accept()

    with pytest.raises(Ending, match="what answers is not IAP's relay"):
        connect(accept)
