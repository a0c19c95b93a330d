"""Keeps the latest events in memory; older ones are in the simulator's folder."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from tpuctl.sim.events.event import Event
from tpuctl.sim.events.store import EventStore

MOST = 10_000
"""Events kept in memory; the oldest go first."""


class Events(deque[Event]):
    """The latest events, oldest first; with a `path`, also in files of bounded size.

    One thread adds; others may copy (`list(events)`) and `find`.
    """

    def __init__(self, clock: Callable[[], float] = time.time, path: Path | None = None) -> None:
        super().__init__(maxlen=MOST)
        self._clock = clock
        self._store = EventStore(path) if path else None
        self._number = self._store.last_number() if self._store else 0

    def note(self, kind: str, what: str, resource: str, detail: str = "", service: str = "tpu") -> None:
        """Add an event."""
        self._number += 1
        event = Event(kind, what, resource, detail, self._clock(), service, self._number)
        self.append(event)
        if self._store:
            self._store.write(event)

    def find(self, **patterns: str) -> list[Event]:
        """Return the events whose fields match these shell patterns: `find(kind="fault", what="stock*")`."""
        return [
            event
            for event in list(self)
            if all(fnmatchcase(str(getattr(event, field)), pattern) for field, pattern in patterns.items())
        ]

    def close(self) -> None:
        """Close the file; what is in memory stays."""
        if self._store:
            self._store.close()
            self._store = None
