"""What happened in a simulator, read from its folder: also when it has stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.polling import Backoff, poll

FILE = "events.jsonl"
OLDER = "events.jsonl.1"


class Event(msgspec.Struct, frozen=True):
    """One line of the file."""

    kind: str
    what: str
    resource: str
    detail: str
    time: float
    service: str
    number: int


class EventLog:
    """Reads on where it stopped; the simulator begins a new file now and then, and keeps the one before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = 0
        self._inode = 0
        self._offset = 0

    def new(self) -> list[Event]:
        """Return the events that have come since the last call, in order; at first all there are."""
        try:
            file = (self._folder / FILE).open("rb")
        except FileNotFoundError:
            return []
        with file:
            inode = os.fstat(file.fileno()).st_ino
            lines = [] if inode == self._inode else self._older()
            file.seek(self._offset if inode == self._inode else 0)
            start, content = file.tell(), file.read()
        whole = content.rpartition(b"\n")[0]
        self._inode, self._offset = inode, start + len(whole) + bool(whole)
        found = [
            one for line in (*lines, *whole.split(b"\n")) for one in _event(line) if one.number > self._last
        ]
        self._last = found[-1].number if found else self._last
        return found

    def follow(self, running: Callable[[], bool]) -> Iterator[Event]:
        """Yield events as they come, until the simulator has stopped."""

        def look() -> list[Event] | None:
            alive = running()
            return self.new() or (None if alive else [])

        while found := poll(look, awaiting="an event", timeout=float("inf"), backoff=Backoff(0.05, 0.5)):
            yield from found

    def _older(self) -> list[bytes]:
        path = self._folder / OLDER
        return path.read_bytes().split(b"\n") if path.exists() else []


def shown(event: Event) -> dict[str, Any]:
    """Return an event as JSON has it."""
    return msgspec.structs.asdict(event)


def _event(line: bytes) -> Iterator[Event]:
    try:
        yield msgspec.json.decode(line, type=Event)
    except msgspec.DecodeError:
        return  # empty, or cut by a full disk
