"""Reads the events of a simulator from its folder, also after it has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tpuctl.cloud.simulator.log_cursor import LogCursor
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
