"""A program that runs on a worker while its streams are read and written, over an open connection.

- Opens ports of a host over an open connection, and notices when the connection is dead.
- Asks the SSH server at the other end of a connection for a sign of life.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

import paramiko

from tpuctl.cloud.request_log import logged
from tpuctl.cloud.ssh.dialing import ByteStream, translated

READ = 1 << 22
"""Most bytes of a read: all that has come, as paramiko moves what is left of it each time."""
PACKET = 32_000
"""Bytes of a packet of a channel: OpenSSH takes 32 KiB, its header included."""
PULSE = 15.0
"""Seconds without output after which the host is asked for a sign of life."""
SILENCE = 20.0
"""Seconds that it has for the answer: a host that died or hangs closes no connection."""
WINDOW = 1 << 18
"""Bytes of output that a worker may send before they are read: what bounds the memory."""


class RemoteProcess:
    """A program on a worker; each stream is for one thread. Raises HostError when the connection is lost."""

    def __init__(
        self, transport: paramiko.Transport, worker: str, command: str, window: int = WINDOW
    ) -> None:
        """Start a command line, which the login shell runs."""
        self._transport = transport
        self._worker = worker
        program = command.split(None, 1)[0]  # what it is called with may be a secret
        self._channel = logged("SSH", f"{worker}: start {program}", lambda: self._start(command, window))
        self._is_silent = False

    def _start(self, command: str, window: int) -> paramiko.Channel:
        with self._translated():
            channel = self._transport.open_session(window_size=window)
            channel.exec_command(command)
            channel.settimeout(PULSE)
            return channel

    def read(self, patience: float = inf) -> bytes:
        """Return the next bytes of stdout; none at its end, or once the host gives no sign of life.

        `patience`: seconds without a byte after which it is closed, whatever sign of life the host gives.
        """
        deadline = time.monotonic() + patience
        with self._translated():
            while True:
                try:
                    return bytes(self._channel.recv(READ))
                except TimeoutError:
                    self._await_pulse()
                    if time.monotonic() >= deadline:
                        self._is_silent = True
                        self._channel.close()

    def read_errors(self) -> bytes:
        """Return the next bytes of stderr; none at its end."""
        with self._translated():
            while True:
                try:
                    return bytes(self._channel.recv_stderr(READ))
                except TimeoutError:
                    pass  # whoever reads stdout asks for a sign of life

    def _await_pulse(self) -> None:
        """Close the connection unless the host's SSH server answers; it answers any question."""
        if is_silent(self._transport, SILENCE):
            self._is_silent = True

    def write(self, data: bytes) -> None:
        """Send all bytes to stdin, as fast as the program reads them.

        Raises HostError when that ends, too: `exit_code` says why.
        """
        view = memoryview(data)
        with self._translated():
            while view:
                try:
                    view = view[self._channel.send(view[:PACKET]) :]
                except TimeoutError:  # the program, or the host, reads nothing
                    self._await_pulse()
                except OSError as error:
                    raise EOFError from error

    def end_input(self) -> None:
        """Close stdin."""
        with self._translated():
            self._channel.shutdown_write()

    def exit_code(self) -> int:
        """Return the exit code, once the program has ended and its streams are at their ends.

        Raises HostError if a signal ended the shell that runs it.
        """
        with self._translated():
            code = int(self._channel.recv_exit_status())
            if code >= 0:
                return code
            if self._is_silent:
                raise paramiko.SSHException("it has stopped answering")
            self._transport.join(0.5)  # a lost connection ends its channels first, itself a moment later
            if not self._transport.is_active():
                raise EOFError
            raise paramiko.SSHException("a signal ended the command's shell")

    def close(self) -> None:
        """Close the streams; waiting reads end."""
        self._channel.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translated(self._worker):
            yield


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


QUESTION = "keepalive@openssh.com"
"""A server refuses it, which is an answer, too."""


def is_silent(transport: paramiko.Transport, seconds: float) -> bool:
    """Return whether the server gives no answer in time, and close the connection then."""
    silence = threading.Event()

    def end() -> None:
        silence.set()
        transport.close()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    with suppress(paramiko.SSHException, EOFError, OSError):  # lost meanwhile, which is no silence
        transport.global_request(QUESTION, wait=True)
    timer.cancel()
    return silence.is_set()
