"""Runs programs that use TensorFlow in forks of one process that has imported it: see server.py."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Any

from tests.forks import client

PYTHON = client.PYTHONS["tensorflow"]
OWN_PROCESS = ("TF_USE_LEGACY_KERAS",)
"""Variables that are read while TensorFlow is loaded: a program that sets one needs a process of its own."""


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
    options = {"timeout": timeout, "environment": environment, "cwd": cwd or Path.cwd(), "cpus": cpus}
    return _forked(command, options)


def _forked(command: Sequence[str], options: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Have the server run a program, and collect what it prints until it has ended."""
    pipes = [os.pipe(), os.pipe()]
    outputs = ["", ""]
    readers = [
        Thread(target=_collect, args=(os.fdopen(read, errors="replace"), outputs, number), daemon=True)
        for number, (read, _) in enumerate(pipes)
    ]
    for reader in readers:
        reader.start()
    try:
        with open(os.devnull) as nothing:
            code = client.run(
                "tensorflow", command, [nothing.fileno(), *(write for _, write in pipes)], **options
            )
    finally:
        for _, write in pipes:
            os.close(write)
        for reader in readers:
            reader.join()
    return subprocess.CompletedProcess(command, code, *outputs)


def _collect(stream: IO[str], outputs: list[str], number: int) -> None:
    with stream:
        outputs[number] = stream.read()


def report_of(*arguments: str | Path, variables: Mapping[str, str], **options: Any) -> Any:
    """Run a program to its end, and return the JSON that it prints last."""
    ended = python(*arguments, variables=variables, **options)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])
