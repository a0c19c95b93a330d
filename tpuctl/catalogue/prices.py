"""Defines what chips cost: rates of a price list, prices of the configuration, and the price of a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from tpuctl.accelerators import Accelerator, region

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
