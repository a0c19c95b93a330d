"""Defines what all records have in common, and those that every part of the API uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from tpuctl import clock

if TYPE_CHECKING:
    from tpuctl.catalogue.prices import Price


class Record:
    """What a call returns: frozen, and typed; a notebook shows its fields as a table."""

    def _repr_html_(self) -> str:
        from tpuctl.display.markup import record_html  # only in notebooks

        return record_html(self)


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


@dataclass(frozen=True)
class Cost(Record):
    """An estimated amount of money, or the reason why nobody knows it."""

    amount: Decimal | None
    """None for unknown."""
    currency: str
    """ISO 4217: `USD`; empty for unknown."""
    source: str
    """Where the price is from; empty for unknown."""
    reason: str
    """Why it is unknown; empty for an amount."""

    @classmethod
    def _of(cls, price: Price) -> Cost:
        return cls(price.amount, price.currency, price.origin, price.reason)

    def __str__(self) -> str:
        """Return the amount with its currency, or why it is unknown."""
        if self.amount is None:
            return f"unknown: {self.reason}"
        return f"{self.amount.quantize(Decimal('0.01'))} {self.currency}"


@dataclass(frozen=True)
class Fact(Record):
    """One thing that is known of a TPU or a run."""

    name: str
    value: str
    source: str
    """Where it is from."""


FACTS: Mapping[str, Callable[[Fact], object]] = {
    "fact": lambda fact: fact.name,
    "value": lambda fact: fact.value,
    "from": lambda fact: fact.source,
}
"""How facts are shown."""


def moment(text: str) -> datetime | None:
    """Return the time that a record has as text, UTC; None for an empty text."""
    return clock.parse(text).astimezone(UTC) if text else None
