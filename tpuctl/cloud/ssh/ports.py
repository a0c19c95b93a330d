"""Opens ports of a host over an open connection, and notices when the connection is dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import paramiko

from tpuctl.cloud.ssh.dialing import ByteStream
from tpuctl.cloud.ssh.sign_of_life import is_silent

OPEN_TIMEOUT = 20.0
NAME = "localhost"
"""As `ssh -L PORT:localhost:PORT`: programs that listen on 127.0.0.1 or ::1 alone answer, too."""


class HostPorts:
    """The ports of the host at the other end of a connection; every method may be called by many threads."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport

    def open(self, port: int, origin: tuple[str, int]) -> ByteStream:
        """Connect to a port of the host; `origin` is the address of the client, which the host may log.

        Raises ConnectionRefusedError where nothing listens, ConnectionError when the connection is lost.
        """
        try:
            return _Stream(
                self._transport.open_channel("direct-tcpip", (NAME, port), origin, timeout=OPEN_TIMEOUT)
            )
        except paramiko.ChannelException as error:
            raise ConnectionRefusedError(error.text) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise ConnectionError(str(error)) from error

    def is_lost_within(self, seconds: float) -> bool:
        """Wait so long, or until the connection is lost; return whether it is."""
        self._transport.join(seconds)
        return not self._transport.is_active()

    def answers(self, seconds: float) -> bool:
        """Ask the host for a sign of life; without one in time, close the connection and return False."""
        return not is_silent(self._transport, seconds) and bool(self._transport.is_active())


class _Stream:
    """A channel as a ByteStream: on a connection that is lost, paramiko raises errors that are no OSError."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self.recv = channel.recv
        self.settimeout = channel.settimeout

    def send(self, data: bytes, /) -> int:
        with _losing():
            sent: int = self._channel.send(data)
            return sent

    def shutdown(self, how: int, /) -> None:
        with _losing():
            self._channel.shutdown(how)

    def close(self) -> None:
        with suppress(ConnectionError), _losing():
            self._channel.close()


@contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except (paramiko.SSHException, EOFError) as error:
        raise ConnectionError("the connection to the host is lost") from error
