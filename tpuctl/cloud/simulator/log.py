"""What the simulator wrote of what went wrong in it: its log, read from its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tpuctl.polling import Backoff, poll

FILE = "simulator.log"
OLDER = "simulator.log.1"
LARGEST = 8 << 20
"""Bytes; a simulator that starts puts a longer one aside, in place of the one before."""


class SimulatorLog:
    """Reads on where it stopped, also when the file was put aside."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._inode = 0
        self._offset = 0

    def new(self) -> list[str]:
        """Return the whole lines that have come since the last call, without their ends; at first all."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(self._offset if inode == self._inode else 0)
            start, content = file.tell(), file.read()
        whole, newline, _ = content.rpartition(b"\n")
        self._inode, self._offset = inode, start + len(whole) + len(newline)
        return whole.decode(errors="replace").split("\n") if newline else []

    def follow(self, running: Callable[[], bool]) -> Iterator[str]:
        """Yield lines as they come, until the simulator has stopped."""

        def look() -> list[str] | None:
            alive = running()
            return self.new() or (None if alive else [])

        while found := poll(look, awaiting="a line", timeout=float("inf"), backoff=Backoff(0.05, 0.5)):
            yield from found


def open_log(folder: Path) -> int:
    """Open the log for a simulator that starts, readable by its user alone, and return the descriptor."""
    path = folder / FILE
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(folder / OLDER)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
