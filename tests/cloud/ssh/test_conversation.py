"""What goes over a connection: programs that are fed and read, streams to ports, and signs of life."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import paramiko
import pytest

from tests.cloud.ssh.scripted_channel import LOST, ScriptedChannel, ScriptedTransport
from tpuctl.cloud.ssh import SshSession, process
from tpuctl.cloud.ssh.dialing import ByteStream, CommandTimeout, Flood
from tpuctl.cloud.ssh.process import HostPorts
from tpuctl.cloud.ssh.session import Limit, converse

DATA = bytes(range(256)) * 400
HOUR = 3600.0
MOST = 16 << 20
"""Bytes of a stream that are kept."""


def talk(channel: Any, data: bytes = b"") -> tuple[bytes, bytes]:
    return converse(channel, data)


def test_all_input_is_sent_before_its_end() -> None:
    channel = ScriptedChannel()
    assert talk(channel, DATA) == (b"", b"")
    assert b"".join(channel.sent) == DATA
    assert max(map(len, channel.sent)) <= 32_768
    assert channel.calls[0] == "end of input"
    assert channel.calls.count("end of input") == 1


def test_a_command_that_takes_little_gets_the_rest_of_each_piece() -> None:
    channel = ScriptedChannel(sends=[1, 1000, TimeoutError(), 3, TimeoutError()])
    talk(channel, DATA)
    assert b"".join(channel.sent) == DATA


@pytest.mark.parametrize("end", [0, OSError("closed")])
def test_a_command_that_reads_no_more_keeps_its_output(end: int | Exception) -> None:
    channel = ScriptedChannel([b"enough"], [b"oh"], sends=[5, end])
    assert talk(channel, DATA) == (b"enough", b"oh")
    assert b"".join(channel.sent) == DATA[:5]


def test_output_is_taken_while_the_input_waits() -> None:
    """A command that prints before it reads on."""
    channel = ScriptedChannel([b"a", b"b", TimeoutError(), b"c"], [b"x", b"y"], sends=[TimeoutError()])
    assert talk(channel, b"z") == (b"abc", b"xy")
    assert channel.calls[:5] == ["out", "out", "errors", "errors", "end of input"]


def test_errors_are_taken_while_the_output_waits() -> None:
    """A command that prints them until it may print on."""
    channel = ScriptedChannel([TimeoutError(), b"a"], [b"x", b"y"])
    assert talk(channel) == (b"a", b"xy")
    assert channel.calls[:4] == ["end of input", "errors", "errors", "out"]


def test_no_output_for_a_while_is_no_end_of_it() -> None:
    channel = ScriptedChannel([TimeoutError(), b"a", TimeoutError()], [TimeoutError(), b"x", TimeoutError()])
    assert talk(channel) == (b"a", b"x")


def test_errors_are_read_to_their_end_after_the_output_has_ended() -> None:
    channel = ScriptedChannel([], [TimeoutError(), b"x", TimeoutError(), b"y"])
    assert talk(channel) == (b"", b"xy")
    assert channel.calls.count("out") == 1


@pytest.mark.parametrize("stream", ["out", "errors"])
def test_a_stream_may_have_sixteen_mebibytes_and_no_byte_more(stream: str) -> None:
    pieces = [bytes(1 << 15)] * (MOST >> 15)
    assert sum(map(len, talk(ScriptedChannel(**{stream: pieces})))) == MOST
    with pytest.raises(Flood, match="16,777,216"):
        talk(ScriptedChannel(**{stream: [*pieces, b"x"]}))


def test_both_streams_may_have_that_much() -> None:
    pieces = [bytes(1 << 15)] * (MOST >> 15)
    assert sum(map(len, talk(ScriptedChannel(pieces, pieces)))) == 2 * MOST


class TestLimit:
    def test_a_block_that_ends_in_time_raises_what_it_raises(self) -> None:
        channel: Any = ScriptedChannel()
        with Limit(HOUR) as limit:
            limit.bind(channel)
        with pytest.raises(ValueError, match="mine"), Limit(HOUR):
            raise ValueError("mine")
        assert not channel.closed.is_set()
        timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        for timer in timers:
            timer.join(60)
            assert not timer.is_alive()

    def test_a_channel_that_is_bound_too_late_is_closed(self) -> None:
        channel: Any = ScriptedChannel()
        Limit(HOUR).bind(channel)
        assert not channel.closed.is_set()
        Limit(0).bind(channel)
        assert channel.closed.is_set()

    def test_a_block_without_time_is_a_timeout(self) -> None:
        with pytest.raises(CommandTimeout), Limit(0):
            pass

    def test_a_channel_is_closed_when_its_time_has_passed(self) -> None:
        channel: Any = ScriptedChannel()

        def use() -> None:
            with Limit(0.01) as limit:
                limit.bind(channel)
                assert channel.closed.wait(60)
                raise EOFError

        with pytest.raises(CommandTimeout) as raised:
            use()
        assert isinstance(raised.value.__cause__, EOFError)

    def test_an_interrupt_is_no_timeout(self) -> None:
        with pytest.raises(KeyboardInterrupt), Limit(0):
            raise KeyboardInterrupt


USES: dict[str, Callable[[ByteStream], object]] = {
    "send": lambda stream: stream.send(b"x"),
    "shutdown": lambda stream: stream.shutdown(socket.SHUT_WR),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_lost_connection_is_an_error_of_the_network(
    session: SshSession, use: Callable[[ByteStream], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost while paramiko writes to it, where it raises EOFError.

    Its own thread, which reads, has not seen that yet: it would close the stream, which then takes anything.
    """

    def is_lost(_data: bytes) -> None:
        raise EOFError

    with socket.create_server(("127.0.0.1", 0)) as board:
        stream = HostPorts(session.transport).open(board.getsockname()[1], ("127.0.0.1", 0))
        monkeypatch.setattr(session.transport.packetizer, "write_all", is_lost)
        with pytest.raises(ConnectionError, match="is lost"):
            use(stream)
        stream.close()


ORIGIN = ("127.0.0.1", 40_000)


def test_a_port_is_one_of_the_hosts_own() -> None:
    transport: Any = ScriptedTransport(ScriptedChannel([b"answer"]))
    stream = HostPorts(transport).open(6006, ORIGIN)
    assert transport.opened == [{"kind": "direct-tcpip", "place": (("localhost", 6006), ORIGIN)}]
    assert (stream.send(b"question"), stream.recv(100), stream.recv(100)) == (8, b"answer", b"")
    stream.shutdown(socket.SHUT_WR)
    assert transport.channel.calls[-1] == f"shutdown {socket.SHUT_WR:d}"
    stream.close()
    assert transport.channel.closed.is_set()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (paramiko.ChannelException(2, "Connect failed"), ConnectionRefusedError, "Connect failed"),
        (paramiko.SSHException("No active session"), ConnectionError, "No active session"),
        (EOFError("gone"), ConnectionError, "gone"),
        (OSError("broken"), ConnectionError, "broken"),
    ],
)
def test_a_port_that_does_not_open_is_an_error_of_the_network(
    error: Exception, kind: type[OSError], text: str
) -> None:
    transport: Any = ScriptedTransport(error)
    with pytest.raises(kind, match=f"^{text}$") as raised:
        HostPorts(transport).open(6006, ORIGIN)
    assert type(raised.value) is kind


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_connection_is_watched_for_some_seconds(is_lost: bool) -> None:
    transport: Any = ScriptedTransport(LOST, is_lost=is_lost)
    assert HostPorts(transport).is_lost_within(7.0) == is_lost
    assert transport.joined == [7.0]


@pytest.mark.parametrize(
    ("is_silent", "is_lost", "answers"), [(False, False, True), (True, True, False), (False, True, False)]
)
def test_a_host_answers_unless_it_is_silent_or_the_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch, is_silent: bool, is_lost: bool, answers: bool
) -> None:
    monkeypatch.setattr(process, "is_silent", lambda transport, seconds: is_silent and seconds == 9.0)
    transport: Any = ScriptedTransport(LOST, is_lost=is_lost)
    assert HostPorts(transport).answers(9.0) == answers


class Transport:
    """The near end of a connection whose server answers, or is waited for until the connection is closed."""

    def __init__(self, error: Exception | None = None, *, is_silent: bool = False) -> None:
        self.closed, self.asked = threading.Event(), list[str]()
        self._error, self._is_silent = error, is_silent

    def global_request(self, kind: str, *, wait: bool) -> None:
        assert wait
        self.asked.append(kind)
        if self._is_silent:
            assert self.closed.wait(60)
        if self._error:
            raise self._error

    def close(self) -> None:
        self.closed.set()


def is_silent(transport: Transport, seconds: float) -> bool:
    return process.is_silent(cast("Any", transport), seconds)


def test_a_server_that_answers_keeps_its_connection() -> None:
    transport = Transport()
    assert not is_silent(transport, 600)
    assert (transport.asked, transport.closed.is_set()) == (["keepalive@openssh.com"], False)


@pytest.mark.parametrize("error", [paramiko.SSHException("x"), EOFError(), OSError()])
def test_a_connection_that_is_lost_is_not_silent(error: Exception) -> None:
    assert not is_silent(Transport(error), 600)


@pytest.mark.parametrize("error", [None, EOFError()])
def test_a_server_without_an_answer_in_time_loses_its_connection(error: Exception | None) -> None:
    transport = Transport(error, is_silent=True)
    assert is_silent(transport, 0.01)
    assert transport.closed.is_set()


def test_the_wait_for_an_answer_keeps_no_program_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = list[threading.Timer]()

    class Noted(threading.Timer):
        def start(self) -> None:
            timers.append(self)
            super().start()

    own = SimpleNamespace(Event=threading.Event, Timer=Noted)
    monkeypatch.setattr(process, "threading", own)
    assert not is_silent(Transport(), 600)
    (timer,) = timers
    assert timer.daemon
    timer.join(60)
    assert not timer.is_alive(), "an answer ends it"
