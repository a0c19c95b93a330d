"""Tests what a tunnel makes of each frame, and when, on connections that the test plays itself.

Tests the counts of a tunnel's bytes.
"""

from __future__ import annotations

import queue
import socket
import struct
import tracemalloc
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.cloud.iap import Instance, Patience, open_tunnel
from tpuctl.cloud.iap.frames import Ending, Interruption
from tpuctl.cloud.iap.tunnel import WINDOW, Ledger
from tpuctl.errors import ConfigError, HostError
from tpuctl.polling import poll

HOUR = 3600.0
CALM = Patience(HOUR, HOUR, HOUR, HOUR, pause=0.01, steady=HOUR, linger=0.01, acknowledge=HOUR)
"""Nothing happens because time passes."""
GREETING = struct.pack(">HI", 1, 2) + b"s1"
SIZE = 16_384


def data(payload: bytes) -> bytes:
    return struct.pack(">HI", 4, len(payload)) + payload


MEBIBYTE = data(bytes(1 << 20))


def number(tag: int, value: int) -> bytes:
    return struct.pack(">HQ", tag, value)


def ending(code: int, reason: bytes) -> bytes:
    return struct.pack(">HII", 10, code, len(reason)) + reason


class Played:
    """A connection: the messages that come are those that the test pushes."""

    has_input = False
    output_size = 0

    def __init__(self, *messages: bytes | Ending) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._messages: deque[bytes | Ending] = deque()
        self.sent: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_closed = False
        for message in messages:
            self.push(message)

    def push(self, message: bytes | Ending) -> None:
        self._messages.append(message)
        self._outer.send(b"x")

    def fileno(self) -> int:
        return self._inner.fileno()

    def receive(self) -> Iterator[tuple[bytes, bool]]:
        try:
            count = len(self._inner.recv(100))
        except BlockingIOError:
            return
        for _ in range(count):
            message = self._messages.popleft()
            if isinstance(message, Ending):
                raise message
            yield message, True

    def send(self, message: bytes) -> None:
        self.sent.put(message)

    def flush(self) -> None:
        """Nothing is kept back."""

    def ping(self) -> None:
        self.sent.put(b"ping")

    def say_goodbye(self) -> None:
        self.sent.put(b"goodbye")

    def close(self) -> None:
        self.is_closed = True
        self._inner.close()
        self._outer.close()


class PlayedRelay:
    """Answers with these connections, one after the other."""

    def __init__(self, *connections: Played | Ending, patience: Patience = CALM) -> None:
        self.patience = patience
        self._connections = deque(connections)
        self.asked: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()

    def begin(self, instance: Instance) -> Played:
        return self._next()

    def resume(self, instance: Instance, session: bytes, received: int, *, renew: bool) -> Played:
        self.asked.put((session, received, renew))
        return self._next()

    def _next(self) -> Played:
        connection = self._connections.popleft()
        if isinstance(connection, Ending):
            raise connection
        return connection


def opened(*connections: Played | Ending, patience: Patience = CALM) -> tuple[socket.socket, PlayedRelay]:
    relay: Any = PlayedRelay(*connections, patience=patience)
    stream = open_tunnel(relay, Instance("p", "z", "host-1"), "Worker 0 of 'n1'")
    stream.settimeout(60)
    return stream, relay


def read(stream: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = stream.recv(size - len(received))
        assert part
        received += part
    return received


@pytest.mark.parametrize(
    ("frame", "name"),
    [(data(b"x"), "Data"), (number(2, 0), "Reconnected"), (number(7, 0), "Acknowledged")],
)
def test_a_tunnel_begins_with_its_greeting(frame: bytes, name: str) -> None:
    connection = Played(frame)
    with pytest.raises(HostError, match=f"the relay sent {name} at the wrong moment"):
        opened(connection)
    assert connection.is_closed


def test_a_tunnel_is_refused_by_a_frame_in_place_of_its_greeting() -> None:
    connection = Played(ending(4033, b"not you"))
    with pytest.raises(ConfigError, match="you may not use IAP's tunnels to it: not you"):
        opened(connection)
    assert connection.is_closed


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (GREETING, "the relay sent Connected at the wrong moment"),
        (number(2, 0), "the relay sent Reconnected at the wrong moment"),
        (number(7, 1), "the relay acknowledged 1 bytes, which cannot be"),
        (ending(4003, b"f\xff"), "IAP cannot reach its port 22: f\ufffd"),
    ],
)
def test_a_frame_that_ends_a_tunnel_is_the_error_of_its_reader(frame: bytes, text: str) -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection)
    with stream:
        connection.push(data(b"last"))
        connection.push(frame)
        assert read(stream, 4) == b"last"
        with pytest.raises(HostError, match=text):
            stream.recv(1)
        assert stream.recv(0) == b""


def test_a_tunnel_that_the_host_ends_is_the_end_of_the_stream() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection)
    with stream:
        connection.push(data(b"last"))
        connection.push(ending(4010, b""))
        assert (read(stream, 4), stream.recv(1)) == (b"last", b"")


def test_what_is_received_is_acknowledged_after_more_than_two_full_frames() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection)
    with stream:
        for _ in range(2):
            connection.push(data(bytes(SIZE)))
            assert read(stream, SIZE) == bytes(SIZE)
        connection.push(data(b"x"))
        assert connection.sent.get(timeout=60) == number(7, 2 * SIZE + 1)


def test_what_is_sent_is_in_frames_of_sixteen_kibibytes_at_most() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection)
    content = bytes(range(256)) * 200
    with stream:
        stream.sendall(content)
        arrived = b""
        while len(arrived) < len(content):
            frame = connection.sent.get(timeout=60)
            tag, size = struct.unpack_from(">HI", frame)
            assert (tag, size) == (4, len(frame) - 6)
            assert size <= SIZE
            arrived += frame[6:]
        assert arrived == content
        connection.push(number(7, len(content)))  # so that it ends without waiting for that


@pytest.mark.parametrize(("code", "renews"), [(0, False), (1006, False), (4004, True)])
def test_a_lost_connection_is_resumed_where_it_ended(code: int, renews: bool) -> None:
    first, second = Played(GREETING), Played(number(2, 2))
    stream, relay = opened(first, second)
    with stream:
        stream.sendall(b"abc")
        assert first.sent.get(timeout=60) == data(b"abc")
        first.push(data(b"12345"))
        assert read(stream, 5) == b"12345"
        first.push(Interruption("lost", code))
        assert relay.asked.get(timeout=60) == (b"s1", 5, renews)
        assert second.sent.get(timeout=60) == data(b"c")
        second.push(data(b"6"))
        assert read(stream, 1) == b"6"
        assert first.is_closed


def test_attempts_that_fail_are_followed_by_others() -> None:
    first, last = Played(GREETING), Played(number(2, 0))
    stream, relay = opened(first, Interruption("no network"), Interruption("again", 4004), last)
    with stream:
        first.push(Interruption("lost"))
        assert [relay.asked.get(timeout=60)[2] for _ in range(3)] == [False, False, True]
        last.push(data(b"on"))
        assert read(stream, 2) == b"on"


def test_a_relay_that_refuses_to_resume_ends_the_tunnel() -> None:
    first = Played(GREETING)
    stream, _ = opened(first, Ending("unknown session", 4001))
    with stream:
        first.push(Interruption("lost"))
        with pytest.raises(HostError, match="was lost and cannot be resumed: unknown session"):
            stream.recv(1)


def test_credentials_that_cannot_be_renewed_are_the_error_of_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> Played:
        raise ConfigError("Log in again.")

    first = Played(GREETING)
    stream, relay = opened(first)
    monkeypatch.setattr(relay, "resume", refuse)
    with stream:
        first.push(Interruption("lost", 4004))
        with pytest.raises(ConfigError, match="Log in again"):
            stream.recv(1)


def test_a_goodbye_is_said_after_everything_else() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection)
    stream.sendall(b"last words")
    stream.close()
    assert connection.sent.get(timeout=60) == data(b"last words")
    assert connection.sent.get(timeout=60) == b"goodbye"


def test_what_comes_after_a_goodbye_is_not_held() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection, patience=replace(CALM, linger=HOUR))
    stream.close()
    assert connection.sent.get(timeout=60) == b"goodbye"
    tracemalloc.start()
    for _ in range(200):
        connection.push(MEBIBYTE)
    connection.push(Ending("closed", 1000))
    poll(lambda: connection.is_closed or None, awaiting="the end", timeout=60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def test_who_has_ended_its_side_still_gets_what_comes() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection, patience=replace(CALM, linger=HOUR))
    stream.shutdown(socket.SHUT_WR)
    assert connection.sent.get(timeout=60) == b"goodbye"
    for _ in range(5):
        connection.push(MEBIBYTE)
    connection.push(Ending("closed", 1000))
    with stream:
        assert len(read(stream, 5 << 20)) == 5 << 20
        assert stream.recv(1) == b""


def test_a_relay_that_does_not_greet_is_given_up() -> None:
    connection = Played()
    with pytest.raises(HostError, match="the relay did not answer in time"):
        opened(connection, patience=replace(CALM, connect=0.01))
    assert connection.is_closed


def test_without_a_near_end_there_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Too many open files")

    connection = Played(GREETING)
    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        opened(connection)
    assert connection.is_closed


def test_a_silent_relay_is_asked_whether_it_is_there() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection, patience=replace(CALM, ping=0.01))
    with stream:
        assert [connection.sent.get(timeout=60) for _ in range(2)] == [b"ping", b"ping"]
        connection.push(data(b"x"))
        assert read(stream, 1) == b"x"


def test_a_relay_that_stays_silent_is_left() -> None:
    connection = Played(GREETING)
    stream, relay = opened(connection, Ending("over", 4001), patience=replace(CALM, silence=0.01))
    with stream:
        assert relay.asked.get(timeout=60) == (b"s1", 0, False)
        with pytest.raises(HostError, match="over"):
            stream.recv(1)
        assert connection.is_closed


def test_a_little_that_was_received_is_acknowledged_after_a_while() -> None:
    connection = Played(GREETING)
    stream, _ = opened(connection, patience=replace(CALM, acknowledge=0.01))
    with stream:
        connection.push(data(b"abc"))
        assert connection.sent.get(timeout=60) == number(7, 3)


def test_a_connection_that_cannot_be_resumed_is_given_up_in_the_end() -> None:
    connection = Played(GREETING)
    failures = [Interruption("no network", 1006)] * 1000
    stream, _ = opened(connection, *failures, patience=replace(CALM, resume=0.05))
    with stream:
        connection.push(Interruption("cut"))
        text = r"the connection was lost, and then: no network \(code 1006\)"
        with pytest.raises(HostError, match=text):
            stream.recv(1)


STEPS = st.lists(
    st.one_of(
        st.builds(lambda data: ("add", data), st.binary(min_size=1, max_size=9)),
        st.builds(lambda share: ("send", share), st.integers(1, 4)),
        st.builds(lambda share: ("confirm", share), st.floats(0, 1)),
        st.builds(lambda share: ("lose", share), st.floats(0, 1)),
    ),
    max_size=60,
)


@pytest.mark.daily
@given(STEPS)
def test_the_relay_gets_every_byte_once_wherever_connections_are_lost(
    steps: list[tuple[str, object]],
) -> None:
    """The relay has a prefix of what was sent; each new connection begins where that ends."""
    ledger, whole, relay, confirmed, in_flight = Ledger(), b"", b"", 0, b""
    for step, value in steps:
        if step == "add":
            assert isinstance(value, bytes)
            whole += value
            ledger.add(value)
        elif step == "send":
            for _ in range(int(value)):  # type: ignore[call-overload]
                if ledger.has_unsent:
                    in_flight += ledger.next_chunk()
        elif step == "confirm":
            arrived = round(len(in_flight) * float(value))  # type: ignore[arg-type]
            relay, in_flight = relay + in_flight[:arrived], in_flight[arrived:]
            confirmed = len(relay)
            ledger.confirm(confirmed)
        else:
            arrived = round(len(in_flight) * float(value))  # type: ignore[arg-type]
            relay, in_flight = relay + in_flight[:arrived], b""
            ledger.rewind(len(relay))
        assert relay + in_flight == whole[: len(relay + in_flight)]
    ledger.rewind(len(relay))
    while ledger.has_unsent:
        relay += ledger.next_chunk()
    assert relay == whole
    ledger.confirm(len(whole))
    assert not ledger.awaits_confirmation


def test_an_acknowledgement_of_bytes_that_were_never_sent_is_refused() -> None:
    ledger = Ledger()
    ledger.add(b"abc")
    with pytest.raises(Ending, match="acknowledged 3 bytes, which cannot be"):
        ledger.confirm(3)
    ledger.next_chunk()
    ledger.confirm(3)
    with pytest.raises(Ending, match="acknowledged 2 bytes, which cannot be"):
        ledger.confirm(2)


@pytest.mark.parametrize("sent", [b"", b"abc"])
def test_one_byte_more_than_was_sent_is_refused(sent: bytes) -> None:
    ledger = Ledger()
    ledger.add(b"abc")
    if sent:
        assert ledger.next_chunk() == sent
    with pytest.raises(Ending, match="which cannot be"):
        ledger.confirm(len(sent) + 1)
    ledger.confirm(len(sent))
    assert ledger.confirmed == len(sent)


def test_a_chunk_that_was_confirmed_is_not_sent_again() -> None:
    ledger = Ledger()
    for data in (b"ab", b"cd", b"ef"):
        ledger.add(data)
        ledger.next_chunk()
    ledger.confirm(2)
    assert not ledger.has_unsent
    ledger.rewind(3)
    assert [ledger.next_chunk(), ledger.next_chunk()] == [b"d", b"ef"]
    ledger.rewind(6)
    assert not ledger.has_unsent


def test_what_is_added_after_all_was_confirmed_is_sent() -> None:
    ledger = Ledger()
    for data in (b"ab", b"cd"):
        ledger.add(data)
    ledger.next_chunk()
    ledger.confirm(2)
    assert ledger.next_chunk() == b"cd"
    ledger.confirm(4)
    ledger.add(b"ef")
    assert ledger.has_unsent
    assert ledger.next_chunk() == b"ef"
    ledger.confirm(6)


def test_what_a_lost_connection_carried_may_turn_up_late() -> None:
    ledger = Ledger()
    for data in (b"ab", b"cd"):
        ledger.add(data)
        ledger.next_chunk()
    ledger.rewind(0)
    assert ledger.next_chunk() == b"ab"
    ledger.rewind(4)
    assert (ledger.has_unsent, ledger.confirmed) == (False, 4)


@pytest.mark.parametrize(("frames", "awaits"), [(1, False), (2, False), (3, True)])
def test_a_confirmation_is_awaited_after_more_than_two_full_frames(frames: int, awaits: bool) -> None:
    """As the relay sends it, says gcloud's client."""
    ledger = Ledger()
    for _ in range(frames):
        ledger.add(bytes(16_384))
    assert ledger.awaits_confirmation == awaits
    ledger.add(b"x")
    assert ledger.awaits_confirmation == (frames >= 2)


def test_a_relay_that_acknowledges_nothing_holds_up_the_sender() -> None:
    ledger = Ledger()
    while not ledger.is_full:
        ledger.add(bytes(16_384))
    assert ledger.awaits_confirmation
    count = 0
    while ledger.has_unsent:
        count += len(ledger.next_chunk())
    assert count == WINDOW
    ledger.confirm(1)
    assert not ledger.is_full


def test_what_was_received_is_acknowledged_once_and_by_the_request_that_resumes() -> None:
    ledger = Ledger()
    ledger.receive(40_000)
    assert ledger.unacknowledged == 40_000
    assert ledger.acknowledge() == 40_000
    assert ledger.unacknowledged == 0
    ledger.receive(5)
    ledger.rewind(0)
    assert ledger.unacknowledged == 0
    assert ledger.received == 40_005
