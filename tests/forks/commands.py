"""Runs a command as a program of its own, without the half second that its imports take: see server.py."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forks import client

TIMEOUT = 120.0


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    *,
    pauses: bool = True,
) -> int:
    """Run a Python program in this working folder, and return its exit code.

    `arguments` are those of the interpreter: a file, or `-m MODULE`, then the program's own. Without
    `pauses`, what fails is tried again at once, and as often: nobody waits 20 seconds for a fault to last.
    """
    return client.run(
        "commands", arguments, descriptors, timeout=TIMEOUT, environment=environment, cwd=Path.cwd(),
        without_pauses=not pauses,
    )  # fmt: skip


def call(*arguments: str, pauses: bool = True, **variables: str) -> tuple[int, bytes]:
    """Return the exit code of tpuctl and all that it writes to stdout and stderr, without a terminal."""
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as output:
        descriptors = [nothing.fileno(), output.fileno(), output.fileno()]
        code = run(("-m", "tpuctl", *arguments), {**os.environ, **variables}, descriptors, pauses=pauses)
        output.seek(0)
        return code, output.read()


class Program(subprocess.Popen[Any]):
    """A program that runs: a Popen of a fork of the server, in a session of its own.

    `arguments` are those of the interpreter, and `options` those of Popen that say what its input, output
    and environment are. The methods that it replaces are where Popen starts a process and asks the system
    about it: the same in Python 3.11 to 3.13.
    """

    def __init__(self, *arguments: str, **options: Any) -> None:
        self._arguments = arguments
        super().__init__([sys.executable, *arguments], **options)

    def _execute_child(
        self, args: object, executable: object, preexec_fn: object, close_fds: object, pass_fds: object,
        cwd: object, env: Mapping[str, str] | None, startupinfo: object, creationflags: object, shell: object,
        *more: int,
    ) -> None:  # fmt: skip
        pipes = more[:6]
        given = (pipes[0], pipes[3], pipes[5])
        descriptors = [own if it == -1 else it for own, it in enumerate(given)]
        self._connection = client.begin(
            "commands",
            self._arguments,
            descriptors,
            environment=os.environ if env is None else env,
            cwd=Path.cwd(),
            tells_pid=True,
        )
        self.pid = client.number("commands", self._connection)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None and self._try_wait(os.WNOHANG)[0]:
                    self._handle_exitstatus(self._status)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        code = client.exit_code("commands", self._connection)
        self._connection.close()
        self._status = -code if code < 0 else code << 8
        return self.pid, self._status


def start(*arguments: str, **options: Any) -> Program:
    """Start tpuctl; `options` are those of Popen."""
    return Program("-m", "tpuctl", *arguments, **options)
