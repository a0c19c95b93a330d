"""Reads the table `[prices]` of a configuration file: what a project pays, where that is known better.

[prices]
currency = "EUR"                               # of every row; USD without it
v3-8 = 7.5                                     # a slice of this type for an hour, on demand
v5e = { on_demand = 1.1, spot = 0.4 }          # a chip of this generation for an hour
"v5e@europe-west4" = { on_demand = 1.3 }       # in one region or zone
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from tpuctl import accelerators
from tpuctl.catalogue.prices import OwnPrice
from tpuctl.errors import ConfigError, TpuctlError, nearest

PRICES = "prices"
CURRENCY = "currency"
TERMS = ("on_demand", "spot")
DEFAULT_CURRENCY = "USD"
LARGEST = 10_000_000
PLACE = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+(-(ai[0-9]+)?[a-z])?")
"""A region or a zone."""

Line = Callable[[str], int]


def read_prices(path: Path, table: object, line_of: Line) -> tuple[OwnPrice, ...]:
    """Return the rows of the table; raises ConfigError that names the file, the line and the key."""
    if not isinstance(table, dict):
        raise ConfigError(
            f"{path}, line {line_of(PRICES)}: 'prices' has to be a table.", hint="Write [prices]."
        )
    rows = {name: value for name, value in table.items() if name != CURRENCY}
    currency = _currency(path, table.get(CURRENCY, DEFAULT_CURRENCY), line_of)
    return tuple(_row(name, value, currency, f"{path}, line {line_of(name)}") for name, value in rows.items())


def _currency(path: Path, value: object, line_of: Line) -> str:
    if isinstance(value, str) and re.fullmatch("[A-Z]{3}", value):
        return value
    raise ConfigError(
        f"{path}, line {line_of(CURRENCY)}: the currency of [prices] has to be a code of three capitals.",
        hint='Write currency = "EUR".',
    )


def _row(key: str, value: object, currency: str, origin: str) -> OwnPrice:
    name, at, place = key.partition("@")
    if at and not PLACE.fullmatch(place):
        raise ConfigError(
            f"{origin}: '{place}' is not a region or zone.", hint='Write "v5e@europe-west4" = ...'
        )
    terms = value if isinstance(value, dict) else {"on_demand": value}
    others = [term for term in terms if term not in TERMS]
    if others or not terms:
        raise ConfigError(
            f"{origin}: the price of {key} has no term '{', '.join(others)}'.",
            hint=f"Write {key} = {{ on_demand = 1.5, spot = 0.5 }}.",
        )
    amounts = {term: _amount(key, amount, origin) for term, amount in terms.items()}
    return OwnPrice(
        _known(name, origin), place, amounts.get("on_demand"), amounts.get("spot"), currency, origin
    )


def _amount(key: str, value: object, origin: str) -> Decimal:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return Decimal(str(value))
    raise ConfigError(
        f"{origin}: the price of {key} has to be a number, 0 or more.", hint=f"Write {key} = 1.5."
    )


def _known(name: str, origin: str) -> str:
    """Return the generation or accelerator type that a key names."""
    generations = {kind.generation for kind in accelerators.catalogue().values()}
    if name in generations:
        return name
    try:
        return accelerators.known(name).type
    except TpuctlError as error:
        close = nearest(name, generations)
        hint = f"Did you mean '{close[0]}'?" if close and "-" not in name else error.hint
        raise ConfigError(
            f"{origin}: there is no accelerator type or generation '{name}'.", hint=hint
        ) from error
