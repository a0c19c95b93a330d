"""Defines the price that a record in the bucket keeps: what something cost per hour at that time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated

import msgspec

from tpuctl import clock
from tpuctl.accelerators import Accelerator, region
from tpuctl.bucket_objects import Label

_AMOUNT = r"([0-9]{1,12}(\.[0-9]{1,12})?)?"
_CURRENCY = r"([A-Z]{3})?"
LONGEST = 256


class RecordedPrice(msgspec.Struct, frozen=True):
    """A price per hour as it was known when its record was written."""

    amount: Annotated[str, msgspec.Meta(pattern=rf"\A{_AMOUNT}\Z")]
    """A decimal number; empty for a price that nobody can know, such as that of reserved capacity."""
    currency: Annotated[str, msgspec.Meta(pattern=rf"\A{_CURRENCY}\Z")] = ""
    source: Label = ""
    """Where it is from: `Cloud Billing Catalog`, or a file with the line."""
    as_of: str = ""
    """When the source was read, ISO-8601, UTC; empty for a source that has no date."""
    reason: Label = ""
    """Why it is unknown."""

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for an amount of nothing, or a time no clock shows."""
        if bool(self.amount) != bool(self.currency):
            raise ValueError("its price has an amount or a currency alone")
        if self.as_of:
            clock.parse(self.as_of)

    @classmethod
    def of(cls, price: Price | None) -> RecordedPrice | None:
        """Return the record of a price; None for None, and for one that no record can hold.

        The folder of a configuration file stays on this machine.
        """
        if price is None:
            return None
        amount, source = price.digits or "", price.source.rpartition("/")[2]
        currency = price.currency if amount else ""
        if not re.fullmatch(_AMOUNT, amount) or not re.fullmatch(_CURRENCY, currency):
            return None
        return cls(amount, currency, source[:LONGEST], price.as_of, price.reason[:LONGEST])

    @property
    def price(self) -> Price:
        """The price."""
        if not self.amount:
            return unknown(self.reason or "it was not known")
        return Price(Decimal(self.amount), self.currency, self.source, self.as_of)


CENT = Decimal("0.01")


@dataclass(frozen=True)
class Price:
    """What something costs per hour, or the reason why nobody knows."""

    amount: Decimal | None
    """None for unknown."""
    currency: str = ""
    """ISO 4217: `USD`."""
    source: str = ""
    """Where it is from: `Cloud Billing Catalog`, or a file with the line."""
    as_of: str = ""
    """When the source was read, ISO-8601, UTC; empty for a source that has no date."""
    reason: str = ""
    """Why it is unknown."""
    hint: str = ""
    """What would make it known."""

    @property
    def is_known(self) -> bool:
        """Whether there is an amount."""
        return self.amount is not None

    @property
    def short(self) -> str:
        """The amount for a column of a table: `12.88 USD`, or `unknown`."""
        return "unknown" if self.amount is None else f"{_rounded(self.amount)} {self.currency}"

    @property
    def digits(self) -> str | None:
        """The amount as decimal text, for JSON: every digit, and no zeros at the end; None for unknown."""
        return None if self.amount is None else f"{self.amount.normalize():f}"

    @property
    def origin(self) -> str:
        """Where the amount is from, with the day: `Cloud Billing Catalog, 2026-01-31`."""
        return f"{self.source}, {self.as_of[:10]}" if self.as_of else self.source

    def times(self, count: int | Decimal) -> Price:
        """Return the price of several such things, or of several hours."""
        return self if self.amount is None else replace(self, amount=self.amount * count)

    def for_seconds(self, seconds: float) -> Price:
        """Return what some seconds cost at this price per hour."""
        return self.times(Decimal(round(seconds)) / 3600)

    def rounded(self, unit: Decimal = CENT) -> Price:
        """Return the price in whole units."""
        return self if self.amount is None else replace(self, amount=self.amount.quantize(unit))

    def __str__(self) -> str:
        """Return the amount with its source and date, or the reason why it is unknown."""
        if self.amount is None:
            return f"unknown: {self.reason}"
        return f"{self.short} ({self.origin})"


def unknown(reason: str, hint: str = "") -> Price:
    """Return the price that nobody knows; `reason` completes "unknown: ..."."""
    return Price(None, reason=reason.rstrip("."), hint=hint)


@dataclass(frozen=True)
class Rate:
    """What one chip of a generation costs per hour in some regions."""

    generation: str
    """As the catalogue of accelerators names it: `v5e`."""
    spot: bool
    slices: bool | None
    """True for slices of several hosts, False for one host, None for either."""
    regions: tuple[str, ...]
    amount: Decimal
    currency: str
    name: str
    """The list's own name of it."""

    def applies_to(self, accelerator: Accelerator, zone: str, *, spot: bool) -> bool:
        """Whether it is the rate of a type in a zone."""
        return (
            self.generation == accelerator.generation
            and self.spot == spot
            and self.slices in (None, accelerator.hosts > 1)
            and any(_contains(place, zone) for place in self.regions)
        )


@dataclass(frozen=True)
class RateList:
    """A price list as it was read."""

    rates: tuple[Rate, ...]
    source: str
    read: str
    """When: ISO-8601, UTC."""

    def price(self, accelerator: Accelerator, zone: str, *, spot: bool) -> Price:
        """Return the price of one slice; of several rates that apply, the highest."""
        rates = [rate for rate in self.rates if rate.applies_to(accelerator, zone, spot=spot)]
        if not rates:
            kind = "spot price" if spot else "price"
            return unknown(f"{self.source} has no {kind} of {accelerator.type} in {region(zone)}")
        highest = max(rates, key=lambda rate: rate.amount)
        return Price(highest.amount * accelerator.chips, highest.currency, self.source, self.read)


@dataclass(frozen=True)
class OwnPrice:
    """A row of the table `[prices]` of a configuration file."""

    name: str
    """An accelerator type, whose slice it is the price of, or a generation, whose chip it is the price of."""
    place: str
    """The region or zone where it holds; empty for everywhere."""
    on_demand: Decimal | None
    spot: Decimal | None
    currency: str
    origin: str
    """The file, with the line."""

    def price(self, accelerator: Accelerator, *, spot: bool) -> Price | None:
        """Return the price of one slice; None where the row says nothing of it."""
        amount = self.spot if spot else self.on_demand
        if amount is None or (self.name != accelerator.type and not accelerator.is_known):
            return None
        chips = 1 if self.name == accelerator.type else accelerator.chips
        return Price(amount * chips, self.currency, self.origin)

    def applies_to(self, accelerator: Accelerator, zone: str) -> bool:
        """Whether it is about a type in a zone."""
        return self.name in (accelerator.type, accelerator.generation) and (
            not self.place or _contains(self.place, zone)
        )

    def precedence(self, accelerator: Accelerator) -> tuple[bool, int]:
        """Return how exactly it names a type and a place: the more exact row has the greater value."""
        return self.name == accelerator.type, len(self.place)


def own_price(rows: Iterable[OwnPrice], accelerator: Accelerator, zone: str, *, spot: bool) -> Price | None:
    """Return the price that the configuration gives one slice; of several rows, the most exact one's."""
    fitting = [row for row in rows if row.applies_to(accelerator, zone)]
    fitting.sort(key=lambda row: row.precedence(accelerator), reverse=True)
    return next((price for row in fitting if (price := row.price(accelerator, spot=spot))), None)


def _contains(place: str, zone: str) -> bool:
    """Whether a zone is in a place: the zone itself, its region, or a continent such as `us`."""
    return zone == place or zone.startswith(f"{place}-")


def _rounded(amount: Decimal) -> str:
    """Return an amount with two digits, or with as many as a smaller one needs."""
    if amount and amount < CENT:
        return f"{amount.normalize():f}"
    return f"{amount.quantize(CENT)}"


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
