"""Runs a command as a program of its own, without the second that its imports take: see server.py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

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
