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
from tpuctl.cloud.ssh.conversation import Limit, converse
from tpuctl.cloud.ssh.explanations import translated
from tpuctl.cloud.ssh.process import WINDOW, RemoteProcess

if TYPE_CHECKING:
    import fabric

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
