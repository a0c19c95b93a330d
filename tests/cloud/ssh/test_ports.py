"""Streams to ports of a host, on a connection that is lost."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tpuctl.cloud.ssh import SshSession
from tpuctl.cloud.ssh.dialing import ByteStream
from tpuctl.cloud.ssh.ports import HostPorts

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
