"""Shows records in notebooks as HTML and SVG, and in a plain Python as short text; needs no IPython."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuctl.catalogue.prices import Price


class Record:
    """What a call returns: frozen, and typed; a notebook shows its fields as a table."""

    def _repr_html_(self) -> str:
        from tpuctl.display.markup import record_html  # noqa: PLC0415  only in notebooks

        return record_html(self)


@dataclass(frozen=True)
class Fact(Record):
    """One thing that is known of a TPU or a run."""

    name: str
    value: str
    source: str
    """Where it is from."""


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

    def __str__(self) -> str:
        """Return the amount with its currency, or why it is unknown."""
        if self.amount is None:
            return f"unknown: {self.reason}"
        return f"{self.amount.quantize(Decimal('0.01'))} {self.currency}"


def cost_of(price: Price) -> Cost:
    """Return a price as Python's users get it."""
    return Cost(price.amount, price.currency, price.origin, price.reason)
