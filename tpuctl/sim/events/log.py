"""Keeps the latest events in memory; older ones are in the simulator's folder."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tpuctl.sim.events.event import Event
from tpuctl.sim.events.masking import masked
from tpuctl.sim.events.store import EventStore

MOST = 10_000
"""Events kept in memory; the oldest go first."""
MOST_BYTES = 16 << 20
"""Bytes of the bodies kept in memory, as JSON."""
LARGEST_BODY = 256 << 10
"""Bytes of one body: metadata of a node may have 512 KiB."""


class Events(deque[Event]):
    """The latest events, oldest first; with a `path`, also in files of bounded size.

    One thread adds; others may copy (`list(events)`) and `find`.
    """

    def __init__(self, clock: Callable[[], float] = time.time, path: Path | None = None) -> None:
        super().__init__()
        self._bytes = 0
        self._clock = clock
        self._store = EventStore(path) if path else None
        self._number = self._store.last_number() if self._store else 0

    def note(
        self,
        kind: str,
        what: str,
        resource: str,
        detail: str = "",
        service: str = "tpu",
        body: Mapping[str, object] | None = None,
    ) -> None:
        """Add an event."""
        self._number += 1
        event = Event(kind, what, resource, detail, self._clock(), service, self._number, _kept(body))
        self.append(event)
        self._bytes += _size(event)
        while len(self) > MOST or self._bytes > MOST_BYTES:
            self._bytes -= _size(self.popleft())
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


def _size(event: Event) -> int:
    return len(msgspec.json.encode(event.body)) if event.body else 0


def _kept(body: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return what the log keeps of a body: secrets are masked, and of a large one only its size and hash."""
    if body is None:
        return None
    encoded = msgspec.json.encode(body)
    if len(encoded) <= LARGEST_BODY:
        return {name: masked(value, name) for name, value in body.items()}
    return {"bytes": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}
