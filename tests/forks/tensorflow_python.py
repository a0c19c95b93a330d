"""Runs programs that use TensorFlow in forks of one process that has imported it: see tensorflow_server.py.

A pytest plugin as well: the process that leads the run starts the server, and ends it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import IO, Any

import pytest

from tests.forks.tensorflow_server import LENGTH, send
from tests.paths import ROOT

PYTHON = os.environ.get("TPUCTL_TEST_TENSORFLOW") or sys.executable
"""This Python, or one with another TensorFlow."""
ADDRESS = "TESTS_TENSORFLOW_SERVER"
"""Variable with the path of the server's socket, for the processes of pytest-xdist."""
LOG = "stderr"
"""File beside the socket, with what the server and its import of TensorFlow print."""
OWN_PROCESS = ("TF_USE_LEGACY_KERAS",)
"""Variables that are read while TensorFlow is loaded: a program that sets one needs a process of its own."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the server, which imports nothing before it is used."""
    if not hasattr(config, "workerinput"):
        config.add_cleanup(_start_server())


def _start_server() -> Any:
    folder = tempfile.TemporaryDirectory(prefix="tensorflow-")
    address = os.path.join(folder.name, "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        with open(os.path.join(folder.name, LOG), "w") as log:
            server = subprocess.Popen(
                [PYTHON, "-m", "tests.forks.tensorflow_server", str(listener.fileno())],
                cwd=ROOT,
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
    os.environ[ADDRESS] = address

    def end() -> None:
        server.terminate()
        server.wait()
        folder.cleanup()

    return end


def python(
    *arguments: str | Path,
    variables: Mapping[str, str],
    cwd: Path | None = None,
    cpus: list[int] | None = None,
    timeout: float = 800,
) -> subprocess.CompletedProcess[str]:
    """Run a program with no TPU but that of `variables`, on some of the machine's `cpus` if they are given.

    `arguments` are those of the interpreter: a file, `-m MODULE` or `-c CODE`, then the program's own.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TPU")}
    environment = inherited | {"TF_CPP_MIN_LOG_LEVEL": "3"} | dict(variables)
    command = [*map(str, arguments)]
    if any(variables.get(name) not in (None, "0") for name in OWN_PROCESS):
        return subprocess.run(
            [PYTHON, *command], env=environment, cwd=cwd, capture_output=True, text=True, check=False
        )
    request = {
        "arguments": command,
        "environment": environment,
        "cwd": str(cwd or Path.cwd()),
        "cpus": cpus,
    }
    return _forked(request, timeout)


def _forked(request: Mapping[str, Any], timeout: float) -> subprocess.CompletedProcess[str]:
    """Have the server run a program, and collect what it prints until it has ended."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(os.environ[ADDRESS])
        pipes = [os.pipe(), os.pipe()]
        send(connection, request, [write for _, write in pipes])
        outputs = ["", ""]
        readers = []
        for number, (read, write) in enumerate(pipes):
            os.close(write)
            readers.append(Thread(target=_collect, args=(os.fdopen(read, errors="replace"), outputs, number)))
            readers[-1].start()
        try:
            answer = connection.recv(LENGTH.size)
        finally:
            connection.close()  # ends the program if it still runs, and with it what it prints
            for reader in readers:
                reader.join()
    assert answer, Path(os.environ[ADDRESS]).with_name(LOG).read_text()[-3000:]
    (code,) = LENGTH.unpack(answer)
    code = code - (1 << 32) if code >> 31 else code
    return subprocess.CompletedProcess(request["arguments"], code, *outputs)


def _collect(stream: IO[str], outputs: list[str], number: int) -> None:
    with stream:
        outputs[number] = stream.read()


def report_of(*arguments: str | Path, variables: Mapping[str, str], **options: Any) -> Any:
    """Run a program to its end, and return the JSON that it prints last."""
    ended = python(*arguments, variables=variables, **options)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])
