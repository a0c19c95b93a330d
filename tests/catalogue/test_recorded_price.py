"""The price in a record: what it keeps, what it refuses, and what stays on the machine."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice

READ = "2026-11-22T12:00:00Z"


@pytest.mark.parametrize(
    "price", [Price(Decimal("12.880"), "USD", "the list", READ), unknown("capacity is reserved")]
)
def test_a_price_comes_back_as_it_was(price: Price) -> None:
    record = RecordedPrice.of(price)
    assert record is not None
    back = msgspec.json.decode(msgspec.json.encode(record), type=RecordedPrice).price
    assert back == Price(price.amount, price.currency, price.source, price.as_of, price.reason)


def test_the_folder_of_a_configuration_stays_on_this_machine() -> None:
    record = RecordedPrice.of(Price(Decimal(1), "EUR", "/home/ada/secret/tpuctl.toml, line 3"))
    assert record == RecordedPrice("1", "EUR", "tpuctl.toml, line 3")


@pytest.mark.parametrize("amount", ["1e99", "-1", "NaN", "0.0000000000001"])
def test_what_no_record_can_hold_is_not_recorded(amount: str) -> None:
    assert RecordedPrice.of(Price(Decimal(amount), "USD")) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"amount": "1"}, {"amount": "", "currency": "USD"}, {"amount": "-1", "currency": "USD"},
        {"amount": "1e9", "currency": "USD"}, {"amount": "1", "currency": "\x1b[31m"},
        {"amount": "1", "currency": "USD", "as_of": "yesterday"},
        {"amount": "1", "currency": "USD", "source": "x" * 257},
    ],
)  # fmt: skip
def test_a_record_of_nonsense_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(fields), type=RecordedPrice)
