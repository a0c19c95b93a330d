"""Runs commands and writes files on one worker, over an open connection."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import paramiko

from tpuctl.atomic_files import PRIVATE
from tpuctl.cloud.request_log import logged
from tpuctl.cloud.ssh.explanations import translated
from tpuctl.cloud.ssh.process import WINDOW, RemoteProcess

if TYPE_CHECKING:
    import fabric


import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from tpuctl.cloud.ssh.explanations import CommandTimeout, Flood

MOST_OUTPUT = 1 << 24
"""Bytes of each of a command's streams that are kept."""
PIECE = 1 << 15
"""Bytes of a read or a write."""
TURN = 0.25
"""Seconds after which a wait for one of a command's streams looks at the others."""
COMMAND_TIMEOUT = 120.0


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command on a host."""

    exit_code: int
    stdout: str
    stderr: str


class SshSession:
    """An open connection to one worker."""

    def __init__(self, transport: paramiko.Transport, worker: str, user: str) -> None:
        self.transport = transport
        """The connection itself: for streams and forwarded ports."""
        self._worker = worker
        self._user = user

    @cached_property
    def _connection(self) -> fabric.Connection:
        """The connection as fabric has it, for files."""
        from tpuctl.cloud.ssh.connection import fabric_connection  # noqa: PLC0415  slow, and commands need none

        return fabric_connection(self.transport, self._worker, self._user)

    @property
    def is_open(self) -> bool:
        """Whether the connection has not been lost, as far as is known."""
        return bool(self.transport.is_active())

    def run(self, argv: Sequence[str], timeout: float = COMMAND_TIMEOUT, stdin: bytes = b"") -> CommandResult:
        """Run a command and return its result, also that of a failing command; quotes the arguments.

        Raises HostError when the connection is lost, after `timeout` seconds, or for a flood of output.
        """
        target = f"{self._worker}: run {argv[0]}"
        return logged("SSH", target, lambda: self._run(argv, timeout, stdin), lambda done: done.exit_code)

    def _run(self, argv: Sequence[str], timeout: float, stdin: bytes) -> CommandResult:
        with translated(self._worker), Limit(timeout) as limit:
            channel = self._open_channel(timeout)
            limit.bind(channel)
            with channel:
                self._begin(channel, argv)
                out, errors = converse(channel, stdin)
                code = channel.recv_exit_status()
            if code < 0 and self._is_lost():
                raise EOFError
        return CommandResult(code, out.decode(errors="replace"), errors.decode(errors="replace"))

    def _open_channel(self, timeout: float) -> paramiko.Channel:
        try:
            return self.transport.open_session(timeout=timeout)
        except paramiko.SSHException as error:
            if self._is_lost():
                raise EOFError from error
            raise

    def _begin(self, channel: paramiko.Channel, argv: Sequence[str]) -> None:
        try:
            channel.exec_command(shlex.join(argv))
        except paramiko.SSHException as error:
            if self._is_lost():
                raise EOFError from error
            raise paramiko.SSHException("it refused to run a command") from error

    def start(self, argv: Sequence[str], window: int = WINDOW) -> RemoteProcess:
        """Start a command whose streams are read and written meanwhile; quotes the arguments.

        At most `window` bytes of its output are on their way. Raises HostError.
        """
        return RemoteProcess(self.transport, self._worker, shlex.join(argv), window)

    def _is_lost(self) -> bool:
        """Whether the connection has ended: its commands end first, itself a moment later."""
        self.transport.join(0.5)
        return not self.is_open

    def put(self, data: bytes, path: str) -> None:
        """Write a file on the host that only its user can read; `path` is relative to the home folder."""
        logged("SSH", f"{self._worker}: write {path}", lambda: self._put(data, path))

    def _put(self, data: bytes, path: str) -> None:
        with translated(self._worker), Limit(COMMAND_TIMEOUT) as limit:
            files = self._connection.sftp()
            limit.bind(files.get_channel())
            with files.open(path, "wb") as stream:
                stream.chmod(PRIVATE)  # before the first byte, and also for a file that exists
                stream.set_pipelined(True)
                stream.write(data)


# Feeds a command on a worker and reads what it prints, with limits of time and of size.


def converse(channel: paramiko.Channel, data: bytes) -> tuple[bytes, bytes]:
    """Send a command its input, and return what it has printed and its errors; raises Flood."""
    channel.settimeout(TURN)
    out = _Stream(channel.recv, channel.recv_ready)
    errors = _Stream(channel.recv_stderr, channel.recv_stderr_ready)
    unsent = memoryview(data)
    while unsent:
        unsent = _send(channel, unsent)
        out.take_ready()
        errors.take_ready()
    channel.shutdown_write()
    while not (out.has_ended and errors.has_ended):
        errors.take_ready()
        (errors if out.has_ended else out).take()
    return bytes(out.data), bytes(errors.data)


def _send(channel: paramiko.Channel, unsent: memoryview) -> memoryview:
    """Send a piece if there is room for it, and return the rest: none for a command that reads no more."""
    try:
        sent = channel.send(unsent[:PIECE])
    except TimeoutError:
        return unsent
    except OSError:  # its streams show whether the command or the connection has ended
        sent = 0
    return unsent[sent:] if sent else unsent[:0]


class _Stream:
    """What a command prints on one of its streams."""

    def __init__(self, receive: Callable[[int], bytes], is_ready: Callable[[], bool]) -> None:
        self._receive = receive
        self._is_ready = is_ready
        self.data = bytearray()
        self.has_ended = False

    def take_ready(self) -> None:
        """Take all that has arrived."""
        while self._is_ready():
            self.take()

    def take(self) -> None:
        """Wait for a turn until a piece arrives; raises Flood."""
        try:
            piece = self._receive(PIECE)
        except TimeoutError:
            return
        self.has_ended = not piece
        self.data += piece
        if len(self.data) > MOST_OUTPUT:
            raise Flood(f"{MOST_OUTPUT:,}")


class Limit:
    """The time that the block has; raises CommandTimeout at its end if that has passed."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._channel: paramiko.Channel | None = None

    @property
    def _has_passed(self) -> bool:
        return time.monotonic() >= self._deadline

    def bind(self, channel: paramiko.Channel) -> None:
        """Close a channel when the time has passed: waiting for it ends then."""
        self._channel = channel
        if self._has_passed:
            channel.close()

    def __enter__(self) -> Limit:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._has_passed and (error is None or isinstance(error, Exception)):
            raise CommandTimeout from error

    def _end(self) -> None:
        if self._channel is not None:
            with suppress(
                EOFError, OSError, paramiko.SSHException
            ):  # the connection may have ended meanwhile
                self._channel.close()
