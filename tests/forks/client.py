"""Starts the servers of `server.py`, and asks them to run programs.

A pytest plugin as well: the process that leads the run starts the servers, which import nothing before they
are used, and ends them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.forks.server import LENGTH, send
from tests.paths import ROOT

PYTHONS = {
    "tensorflow": os.environ.get("TPUCTL_TEST_TENSORFLOW") or sys.executable,
    "commands": sys.executable,
}
"""Name of what a server imports -> its Python: this one, or one with another TensorFlow."""
FOLDER = "TESTS_FORK_SERVERS"
"""Variable with the folder of the servers' sockets."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the servers."""
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    servers = [_start(name, Path(folder.name)) for name in PYTHONS]
    os.environ[FOLDER] = folder.name

    def end() -> None:
        for server in servers:
            server.terminate()
            server.wait()
        folder.cleanup()

    config.add_cleanup(end)


def _start(name: str, folder: Path) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener, _log(folder, name).open("w") as log:
        listener.bind(os.fspath(folder / name))
        listener.listen(64)
        return subprocess.Popen(
            [PYTHONS[name], "-m", "tests.forks.server", name, str(listener.fileno()), str(os.getpid())],
            cwd=ROOT,
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=log,
        )


def _log(folder: Path, name: str) -> Path:
    """What a server and its imports print."""
    return folder / f"{name}.stderr"


def run(
    server: str,
    arguments: Sequence[str],
    descriptors: Sequence[int],
    *,
    timeout: float,
    environment: Mapping[str, str],
    cwd: Path,
    **options: Any,
) -> int:
    """Run a program to its end and return its exit code, or the negative number of the signal that ended it.

    The program ends when this function raises. The rest is explained at `begin`.
    """
    with begin(server, arguments, descriptors, environment=environment, cwd=cwd, **options) as connection:
        connection.settimeout(timeout)
        return exit_code(server, connection)


def begin(
    server: str,
    arguments: Sequence[str],
    descriptors: Sequence[int],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    **options: Any,
) -> socket.socket:
    """Have a program started, and return the connection on which its end is told; it ends with that, too.

    `arguments` are those of the interpreter. The program gets copies of the descriptors as its stdin, stdout
    and stderr.
    """
    request = {
        "arguments": [*arguments],
        "environment": dict(environment),
        "cwd": os.fspath(cwd),
        **options,
    }
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.fspath(Path(os.environ[FOLDER]) / server))
        send(connection, request, descriptors)
    except BaseException:
        connection.close()
        raise
    return connection


def exit_code(server: str, connection: socket.socket) -> int:
    """Return the exit code once the program has ended; negative: the signal that ended it."""
    code = number(server, connection)
    return code - (1 << 32) if code >> 31 else code


def number(server: str, connection: socket.socket) -> int:
    """Return the next number that is told on a connection."""
    answer = connection.recv(LENGTH.size)
    assert answer, _log(Path(os.environ[FOLDER]), server).read_text()[-3000:]
    (told,) = LENGTH.unpack(answer)
    return int(told)
