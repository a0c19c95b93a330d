"""Defines the price that a record in the bucket keeps: what something cost per hour at that time."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

import msgspec

from tpuctl import clock
from tpuctl.bucket_objects import Label
from tpuctl.catalogue.prices import Price, unknown

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
