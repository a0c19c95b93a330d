"""Streams to ports of a host, and connections that are lost."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import paramiko
import pytest

from tests.cloud.ssh.scripted_channel import LOST, ScriptedChannel, ScriptedTransport
from tpuctl.cloud.ssh import SshSession, process
from tpuctl.cloud.ssh.dialing import ByteStream
from tpuctl.cloud.ssh.process import HostPorts

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
