"""Defines the records that every part of the API uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tpuctl import clock
from tpuctl.display import Fact, Record


@dataclass(frozen=True)
class Progress(Record):
    """How far a call is, for its `progress` callback."""

    text: str
    """One line for people."""
    done: int | None = None
    """How much of `total` is done, in `unit`; None for a step that is no amount."""
    total: int | None = None
    """None while it is not known."""
    unit: str = ""
    """`bytes`, `records` or `files`."""
    worker: int | None = None
    """The worker that it is about; None for all."""


ProgressCallback = Callable[[Progress], None]
"""Takes each report of a call, from any of its threads, one at a time."""


FACTS: Mapping[str, Callable[[Fact], object]] = {
    "fact": lambda fact: fact.name,
    "value": lambda fact: fact.value,
    "from": lambda fact: fact.source,
}
"""How facts are shown."""


def moment(text: str) -> datetime | None:
    """Return the time that a record has as text, UTC; None for an empty text."""
    return clock.parse(text).astimezone(UTC) if text else None
