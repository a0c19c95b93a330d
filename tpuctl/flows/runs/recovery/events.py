"""Defines what a step of a watcher tells about a run."""

from __future__ import annotations

from typing import NamedTuple

GOES_ON = "goes on"
RESTARTED = "restarted"
WAITS = "waits"
"""For capacity, or for hosts that do not answer: the next step looks again."""
BUSY = "busy"
"""Another watcher starts it."""
ENDED_FOR_GOOD = "ended"


class Event(NamedTuple):
    """What one step has found or changed."""

    run: str
    attempt: int
    """Its number; 0 where the step has ended before it was known."""
    action: str
    """One of those above."""
    detail: str
    """The state of a run that goes on, the outcome of one that has ended, or why it waits."""

    @property
    def line(self) -> str:
        """The event, for people to read."""
        attempt = f"attempt {self.attempt} " if self.attempt else ""
        return f"{self.run}: {attempt}{self.action}: {self.detail}"
