"""Builds the JSON form of a price."""

from __future__ import annotations

from tpuctl.catalogue.prices import Price


def price_fields(price: Price) -> dict[str, object]:
    """Return a price: its amount is a decimal number in a string, or null with the reason."""
    return {
        "amount": price.digits,
        "currency": price.currency,
        "source": price.source,
        "as_of": price.as_of,
        "reason": price.reason,
    }
