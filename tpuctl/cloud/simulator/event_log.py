"""Reads the events of a simulator from its folder, also after it has stopped.

- Reads a growing file of lines: each complete line once, also when the file is rotated.
- Reads the simulator's log: stdout and stderr of its process, such as tracebacks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder, rotated


class Event(msgspec.Struct, frozen=True):
    """One line of events.jsonl."""

    kind: str
    what: str
    resource: str
    detail: str
    time: float
    service: str
    number: int
    body: dict[str, object] | None = None


class EventLog:
    """The events of the simulator that serves `folder`: those of its current and its previous file."""

    def __init__(self, folder: Path) -> None:
        path = SimulatorFolder(folder).events
        self._cursor = LogCursor(path, rotated(path))

    def new(self) -> list[Event]:
        """Return the events since the last call, in order; the first call returns all."""
        return list(_decoded(self._cursor.new_lines()))


def _decoded(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Event)
        except msgspec.DecodeError:
            continue  # empty, or cut by a full disk


Item = TypeVar("Item")

BACKOFF = Backoff(0.05, 0.5)


class LogCursor:
    """The position up to which `path` was read; the first call reads everything.

    `previous` is where rotation puts the file before: its unread lines come first. Without, they are skipped.
    """

    def __init__(self, path: Path, previous: Path | None = None) -> None:
        self._path = path
        self._previous = previous
        self._inode = 0
        self._offset = 0

    def new_lines(self) -> list[bytes]:
        """Return the complete lines since the last call, without their ends; none when there is no file."""
        with ExitStack() as stack:
            unread = list(self._unread(stack))
            return [line for inode, file in unread for line in self._read(inode, file)]

    def _unread(self, stack: ExitStack) -> Iterator[tuple[int, BinaryIO]]:
        """The files to read, with their inodes, oldest first: those before the last one read are skipped."""
        files: dict[int, BinaryIO] = {}
        for path in (self._path, self._previous):  # in this order a rotation in between hides no file
            try:
                file = stack.enter_context(path.open("rb")) if path else None
            except FileNotFoundError:
                continue
            if file:
                files.setdefault(os.fstat(file.fileno()).st_ino, file)
        oldest_first = list(reversed(files.items()))
        inodes = [inode for inode, _ in oldest_first]
        yield from oldest_first[inodes.index(self._inode) if self._inode in inodes else 0 :]

    def _read(self, inode: int, file: BinaryIO) -> list[bytes]:
        start = self._offset if inode == self._inode else 0
        file.seek(start)
        lines, newline, _ = file.read().rpartition(b"\n")
        self._inode, self._offset = inode, start + len(lines) + len(newline)
        return lines.split(b"\n") if newline else []


def follow(new: Callable[[], list[Item]], running: Callable[[], bool]) -> Iterator[Item]:
    """Yield what `new` returns as it comes, until the simulator has stopped."""

    def check() -> list[Item] | None:
        alive = running()  # before the look: what came until its end is still returned
        return new() or (None if alive else [])

    while items := poll(check, awaiting="new lines", timeout=float("inf"), backoff=BACKOFF):
        yield from items


def last(items: Sequence[Item], count: int | None) -> Sequence[Item]:
    """Return the last `count` items; None: all."""
    return items if count is None else items[max(0, len(items) - count) :]


class SimulatorLog:
    """The log of the simulator that serves `folder`, running or not."""

    def __init__(self, folder: Path) -> None:
        self.path = SimulatorFolder(folder).log
        self._cursor = LogCursor(self.path)

    def new(self) -> list[str]:
        """Return the complete lines since the last call; the first call returns all."""
        return [line.decode(errors="replace") for line in self._cursor.new_lines()]
