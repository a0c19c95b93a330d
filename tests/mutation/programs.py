"""Runs a program with a budget of CPU seconds, and ends it when it stands still."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from tests.mutation import guard

LOOK_INTERVAL = 0.2
STANDSTILL = 300.0
"""Seconds in which every process sleeps: longer than the time-out of a test, which comes first."""


class CpuClock:
    """Counts the CPU seconds of programs and of what they start, whatever else the machine does."""

    def __init__(
        self, budget: float, standstill: float = STANDSTILL, stopped: threading.Event | None = None
    ) -> None:
        self.budget = budget
        self.used = 0.0
        self.standstill = standstill
        self.stopped = stopped or threading.Event()
        """Set by whoever wants no result any more: it ends the program."""

    def again(self) -> CpuClock:
        """Return a clock with the whole budget."""
        return CpuClock(self.budget, self.standstill, self.stopped)

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self.used >= self.budget or self.stopped.is_set()

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: IO[str]
    ) -> int | None:
        """Run a program and return its exit code; None if it was ended: budget used up, or no work done.

        What it has started ends with it, and with this process, however that ends.
        """
        before, moved, mark = self.used, time.monotonic(), 0.0
        process = psutil.Popen(
            [sys.executable, "-P", guard.__file__, *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        with process.stdin:
            while True:
                try:
                    return int(process.wait(LOOK_INTERVAL))
                except psutil.TimeoutExpired:
                    seconds = _cpu_seconds(process)
                self.used = max(self.used, before + seconds)
                if seconds >= mark + 1 or not _is_asleep(process):
                    moved, mark = time.monotonic(), seconds
                if self.is_over or time.monotonic() > moved + self.standstill:
                    break
        process.wait()
        return None


def _is_asleep(process: psutil.Process) -> bool:
    """Return whether a process and its descendants wait, rather than want a busy machine's CPU or disk."""
    waiting = (psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE)
    with suppress(psutil.NoSuchProcess):
        return all(member.status() in waiting for member in (process, *_descendants(process)))
    return False


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants, those that have ended included."""
    seconds = 0.0
    for member in (process, *_descendants(process)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(member.cpu_times()[:4])
    return seconds


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []
