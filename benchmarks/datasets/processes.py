"""Runs a command and measures it: time from outside and inside, CPU time, memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SAMPLED = 0.2
"""Seconds between two looks at the memory of a process and its children."""


@dataclass(frozen=True)
class Usage:
    """The time and memory of one run of a command."""

    wall: float
    """Seconds, Python's start-up and imports included."""
    inside: float
    """Seconds that the process itself measured after its imports; 0 where it reports none."""
    cpu: float
    """Seconds of the process and its children."""
    memory: float
    """Peak of the process, in MB; with its children where it was sampled."""


def run(command: Sequence[str], environment: Mapping[str, str], *, sampled: bool = False) -> Usage:
    """Run a command; `sampled` measures the memory of its children, too. Ends the program if it fails.

    Python's `wait4` gives the CPU time of the process and the children it waited for, and the largest memory
    that one of them had. It is that of this process at least: which therefore imports little.
    """
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        with subprocess.Popen(
            command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT
        ) as process:
            with _Sampler(process.pid, sampled) as sampler:
                _, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{text}")
    largest = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    return Usage(wall, _inside(text), used.ru_utime + used.ru_stime, max(largest, sampler.peak))


def _inside(text: str) -> float:
    last = text.strip().rpartition("\n")[2]
    return float(json.loads(last)["seconds"]) if last.startswith('{"seconds"') else 0.0


class _Sampler:
    """Looks at the resident memory of a process and all below it while it runs."""

    def __init__(self, process: int, enabled: bool) -> None:
        self.peak = 0.0
        self._process = process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch) if enabled else None

    def __enter__(self) -> _Sampler:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._thread:
            self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLED):
            self.peak = max(self.peak, _memory(self._process))


def _memory(root: int) -> float:
    """Return the resident memory of a process and those below it in MB, as `ps` of Linux and macOS says."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True
    )
    processes = [tuple(map(int, line.split())) for line in listing.stdout.splitlines()]
    family, before = {root}, 0
    while len(family) > before:
        before = len(family)
        family |= {process for process, parent, _ in processes if parent in family}
    return sum(memory for process, _, memory in processes if process in family) * 1024 / 1e6
