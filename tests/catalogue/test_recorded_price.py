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


@pytest.mark.parametrize("currency", ["usd", "USDX", "US", "$"])
def test_a_price_in_what_is_no_currency_is_not_recorded(currency: str) -> None:
    assert RecordedPrice.of(Price(Decimal(1), currency)) is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"amount": "1", "currency": currency}), type=RecordedPrice)


@pytest.mark.parametrize("amount", ["123456789012.123456789012", "0", "1E+3", "0.000000000001"])
def test_the_longest_amounts_are_recorded_without_an_exponent(amount: str) -> None:
    record = RecordedPrice.of(Price(Decimal(amount), "USD"))
    assert record is not None
    assert "E" not in record.amount
    assert record.price.amount == Decimal(amount)


@pytest.mark.parametrize("amount", ["1234567890123", "0.1234567890123"])
def test_an_amount_of_too_many_digits_is_not_recorded(amount: str) -> None:
    assert RecordedPrice.of(Price(Decimal(amount), "USD")) is None


def test_nothing_is_recorded_where_nobody_asked() -> None:
    assert RecordedPrice.of(None) is None


def test_the_currency_of_an_unknown_price_is_not_kept() -> None:
    record = RecordedPrice.of(Price(None, "USD", "the list", READ, "nobody says"))
    assert record == RecordedPrice("", "", "the list", READ, "nobody says")


def test_long_sources_and_reasons_are_cut_to_what_a_record_can_hold() -> None:
    text = "".join(map(str, range(1000)))
    record = RecordedPrice.of(Price(None, source=text, reason=text))
    assert record is not None
    assert msgspec.json.decode(msgspec.json.encode(record), type=RecordedPrice) == record
    assert (len(record.source), len(record.reason)) == (256, 256)
    assert text.startswith(record.source)
    assert text.startswith(record.reason)


def test_a_record_without_a_reason_is_of_an_unknown_price() -> None:
    assert RecordedPrice("").price == unknown("it was not known")


def test_a_record_without_a_date_is_read() -> None:
    record = msgspec.json.decode(b'{"amount": "1.5", "currency": "EUR"}', type=RecordedPrice)
    assert record.price == Price(Decimal("1.5"), "EUR")
