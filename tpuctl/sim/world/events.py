"""What happened in the simulated world, for tests and for looking at: requests, transitions, faults."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MOST = 10_000
"""Events kept; the oldest go first."""


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    kind: str
    """`request`, `transition`, `fault` or `notice`"""
    what: str
    """The method (`CreateNode`) of a request or a fault, the new state of a transition, a notice's text."""
    resource: str
    detail: str = ""
    """The message of a fault."""
    time: float = 0.0
    """Seconds since 1970 by the world's clock."""


class Events(deque[Event]):
    """The latest events, oldest first, in memory only."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(maxlen=MOST)
        self._clock = clock

    def note(self, kind: str, what: str, resource: str, detail: str = "") -> None:
        """Add an event."""
        self.append(Event(kind, what, resource, detail, self._clock()))
