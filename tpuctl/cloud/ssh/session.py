"""Runs commands and writes files on one worker, over an open connection."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import fabric
import paramiko

from tpuctl.atomic_files import PRIVATE
from tpuctl.cloud.ssh.explanations import translated

COMMAND_TIMEOUT = 120.0


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command on a host."""

    exit_code: int
    stdout: str
    stderr: str


class TimedCommand(fabric.runners.Remote):  # type: ignore[misc]  # fabric has no annotations
    """A command that knows that it timed out as soon as the library begins to end it.

    The library knows once its timer's thread has ended, which may be too late for the caller.
    """

    _timed_out = False

    def kill(self) -> None:
        """End the command."""
        self._timed_out = True
        with suppress(EOFError, OSError, paramiko.SSHException):  # the connection may have ended meanwhile
            super().kill()

    @property
    def timed_out(self) -> bool:
        """Whether the command was ended because it took longer than its timeout."""
        return self._timed_out


class SshSession:
    """An open connection to one worker."""

    def __init__(self, connection: fabric.Connection, worker: str) -> None:
        self._connection = connection
        self._worker = worker

    @property
    def transport(self) -> paramiko.Transport:
        """The connection itself: for streams, SFTP and forwarded ports."""
        return self._connection.transport

    def run(self, argv: Sequence[str], timeout: float = COMMAND_TIMEOUT) -> CommandResult:
        """Run a command and return its result, also that of a failing command; quotes the arguments.

        Raises HostError when the connection is lost, or after `timeout` seconds.
        """
        with translated(self._worker):
            result = self._connection.run(
                shlex.join(argv), hide=True, warn=True, in_stream=False, timeout=timeout
            )
            if result.exited < 0 and self._is_lost():
                raise EOFError("the connection was lost")
        return CommandResult(result.exited, result.stdout, result.stderr)

    def _is_lost(self) -> bool:
        """Whether the connection has ended: its commands end first, itself a moment later."""
        self.transport.join(0.5)
        return not self._connection.is_connected

    def put(self, data: bytes, path: str) -> None:
        """Write a file on the host that only its user can read; `path` is relative to the home folder."""
        with translated(self._worker), self._connection.sftp().open(path, "wb") as stream:
            stream.chmod(PRIVATE)  # before the first byte, and also for a file that exists
            stream.set_pipelined(True)
            stream.write(data)
