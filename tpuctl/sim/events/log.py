"""The log: the latest events in memory, more of them in the simulator's folder."""

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
    """The latest events, oldest first; with a `path`, all that its files have room for are kept there.

    One thread notes; others may copy (`list(events)`) and `find`.
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

    def find(self, **wanted: str) -> list[Event]:
        """Return the events whose fields match these shell patterns: `find(kind="fault", what="stock*")`."""
        return [
            one
            for one in list(self)
            if all(fnmatchcase(str(getattr(one, name)), pattern) for name, pattern in wanted.items())
        ]

    def close(self) -> None:
        """Close the file; what is in memory stays."""
        if self._store:
            self._store.close()
            self._store = None
