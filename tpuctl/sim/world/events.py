"""What happened in the simulated world, for tests and for looking at: requests, transitions, faults."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MOST = 10_000
"""Events kept; the oldest go first."""


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    kind: str
    """`request`, `transition` or `fault`"""
    what: str
    """The method (`CreateNode`) of a request or a fault; the new state of a transition."""
    resource: str
    detail: str = ""
    """The message of a fault."""


class Events(deque[Event]):
    """The latest events, oldest first, in memory only."""

    def __init__(self) -> None:
        super().__init__(maxlen=MOST)

    def note(self, kind: str, what: str, resource: str, detail: str = "") -> None:
        """Add an event."""
        self.append(Event(kind, what, resource, detail))
