"""Adds up what several things cost, in each currency, and says what is missing in the sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from tpuctl.catalogue.prices import Price, unknown


@dataclass(frozen=True)
class Total:
    """The sum of some costs."""

    amounts: tuple[tuple[str, Decimal], ...] = ()
    """Currency and amount, sorted."""
    sources: tuple[str, ...] = ()
    """Where the prices are from, each with the day."""
    reasons: tuple[str, ...] = ()
    """Why some costs are unknown, and so are not in it."""
    parts: tuple[Price, ...] = ()
    """What was added."""

    @classmethod
    def of(cls, costs: Iterable[Price]) -> Total:
        """Return the sum; nothing is converted to another currency."""
        parts, amounts = tuple(costs), dict[str, Decimal]()
        for cost in parts:
            if cost.amount is not None:
                amounts[cost.currency] = amounts.get(cost.currency, Decimal(0)) + cost.amount
        known = [cost.origin for cost in parts if cost.is_known and cost.origin]
        reasons = [cost.reason for cost in parts if not cost.is_known]
        return cls(
            tuple(sorted(amounts.items())), tuple(dict.fromkeys(known)), tuple(dict.fromkeys(reasons)), parts
        )

    @property
    def short(self) -> str:
        """The sum for a column: `12.88 USD`, `1.00 EUR + 2.00 USD`, `at least 3.20 USD`, or `unknown`."""
        known = " + ".join(Price(amount, currency).rounded().short for currency, amount in self.amounts)
        if not known:
            return "unknown" if self.reasons else "0.00"
        return f"at least {known}" if self.reasons else known

    @property
    def price(self) -> Price:
        """The sum as one price; unknown where a part is, or where it has several currencies."""
        if self.reasons:
            return unknown("; ".join(self.reasons))
        if len(self.amounts) > 1:
            return unknown(f"it was paid in {' and '.join(currency for currency, _ in self.amounts)}")
        if not self.amounts:
            return unknown("nothing was used")
        ((currency, amount),) = self.amounts
        dates = {part.as_of for part in self.parts}
        names = dict.fromkeys(part.source for part in self.parts)
        if len(dates) == 1:
            return Price(amount, currency, "; ".join(names), dates.pop())
        return Price(amount, currency, "; ".join(self.sources))
