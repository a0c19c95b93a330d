"""Prices: which rate applies and what is unknown, what a record keeps of one, and sums by currency."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from tpuctl.accelerators import accelerator
from tpuctl.catalogue.prices import OwnPrice, Price, Rate, RateList, own_price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.catalogue.totals import Total

READ = "2026-11-22T12:00:00Z"


def rate(generation: str, amount: str, *regions: str, spot: bool = False, slices: bool | None = None) -> Rate:
    return Rate(generation, spot, slices, regions, Decimal(amount), "USD", "a rate")


def rates(*rows: Rate) -> RateList:
    return RateList(rows, "the list", READ)


def row(name: str, on_demand: str | None, place: str = "", spot: str | None = None) -> OwnPrice:
    return OwnPrice(
        name,
        place,
        Decimal(on_demand) if on_demand else None,
        Decimal(spot) if spot else None,
        "EUR",
        "tpuctl.toml, line 3",
    )


def test_a_slice_costs_its_chips() -> None:
    price = rates(rate("v5e", "1.20", "us-west4")).price(accelerator("v5e-16"), "us-west4-a", spot=False)
    assert price == Price(Decimal("19.20"), "USD", "the list", READ)
    assert str(price) == "19.20 USD (the list, 2026-11-22)"
    assert price.times(3).short == "57.60 USD"


def test_one_host_and_several_have_rates_of_their_own() -> None:
    listed = rates(rate("v3", "2", "us-east1", slices=False), rate("v3", "1.5", "us-east1", slices=True))
    assert listed.price(accelerator("v3-8"), "us-east1-d", spot=False).amount == 8
    assert listed.price(accelerator("v3-32"), "us-east1-d", spot=False).amount == 24


def test_spot_and_on_demand_are_never_mistaken_for_each_other() -> None:
    listed = rates(rate("v6e", "1", "us-east5", spot=True))
    assert listed.price(accelerator("v6e-8"), "us-east5-b", spot=True).amount == 8
    assert listed.price(accelerator("v6e-8"), "us-east5-b", spot=False).amount is None


def test_a_region_whose_name_only_begins_the_same_is_another_one() -> None:
    listed = rates(rate("v6e", "1", "us-east1"))
    assert not listed.price(accelerator("v6e-8"), "us-east15-b", spot=False).is_known
    assert str(listed.price(accelerator("v6e-8"), "us-east5-b", spot=False)) == (
        "unknown: the list has no price of v6e-8 in us-east5"
    )


def test_a_rate_of_a_continent_holds_in_its_regions() -> None:
    assert rates(rate("v2", "1", "us")).price(accelerator("v2-8"), "us-central1-b", spot=False).amount == 4


def test_of_several_rates_the_highest_counts() -> None:
    listed = rates(rate("v6e", "1", "us-east5"), rate("v6e", "3", "us-east5"), rate("v6e", "2", "us-east5"))
    assert listed.price(accelerator("v6e-1"), "us-east5-b", spot=False).amount == 3


def test_a_row_for_a_type_is_the_price_of_its_slice_and_one_for_a_generation_that_of_a_chip() -> None:
    v3_32 = accelerator("v3-32")
    assert own_price([row("v3-32", "7")], v3_32, "us-east1-d", spot=False) == Price(
        Decimal(7), "EUR", "tpuctl.toml, line 3"
    )
    assert own_price([row("v3", "2")], v3_32, "us-east1-d", spot=False).amount == 32  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rows", "amount"),
    [
        ([row("v3", "1"), row("v3-8", "9")], 9),
        ([row("v3-8", "9"), row("v3-8", "5", "us-east1")], 5),
        ([row("v3-8", "5", "us-east1"), row("v3-8", "6", "us-east1-d")], 6),
        ([row("v3-8", "9"), row("v3", "1", "us-east1-d")], 9),
        ([row("v3-8", "9", "europe-west4"), row("v3", "1")], 4),
        ([row("v3-8", None, spot="2"), row("v3", "1")], 4),
    ],
)
def test_the_most_exact_row_counts(rows: list[OwnPrice], amount: int) -> None:
    price = own_price(rows, accelerator("v3-8"), "us-east1-d", spot=False)
    assert price is not None
    assert price.amount == amount


def test_the_configuration_may_say_nothing() -> None:
    assert own_price([row("v3", "1")], accelerator("v2-8"), "us-east1-d", spot=False) is None
    assert own_price([row("v3", "1")], accelerator("v3-8"), "us-east1-d", spot=True) is None


def test_small_amounts_keep_their_digits_and_unknown_stays_unknown() -> None:
    assert Price(Decimal("0.0012"), "USD").short == "0.0012 USD"
    assert Price(Decimal(0), "USD").short == "0.00 USD"
    assert unknown("nobody says.").times(8) == unknown("nobody says")
    assert unknown("nobody says").short == "unknown"


@pytest.mark.parametrize(
    ("amount", "digits"),
    [("12.880", "12.88"), ("1E+1", "10"), ("100", "100"), ("1E-7", "0.0000001"), ("0.00", "0"), (None, None)],
)
def test_json_has_every_digit_and_no_exponent(amount: str | None, digits: str | None) -> None:
    assert Price(Decimal(amount) if amount else None, "USD").digits == digits


@pytest.mark.parametrize(
    ("amount", "short"),
    [("0.00120", "0.0012 USD"), ("0.0000001", "0.0000001 USD"), ("0.01", "0.01 USD"), ("0.010", "0.01 USD"),
     ("7", "7.00 USD"), ("2.345678", "2.35 USD")],
)  # fmt: skip
def test_a_column_has_two_digits_or_as_many_as_a_small_amount_needs(amount: str, short: str) -> None:
    assert Price(Decimal(amount), "USD").short == short


def test_seconds_cost_their_share_of_an_hour() -> None:
    hourly = Price(Decimal("7.20"), "USD", "the list", READ)
    assert hourly.for_seconds(1800) == Price(Decimal("3.60"), "USD", "the list", READ)
    assert hourly.for_seconds(9.6) == hourly.for_seconds(10)
    assert hourly.for_seconds(0).amount == 0
    assert unknown("nobody says").for_seconds(10) == unknown("nobody says")


def test_rounding_leaves_whole_units() -> None:
    price = Price(Decimal("2.345678"), "USD", "the list", READ)
    assert price.rounded() == Price(Decimal("2.35"), "USD", "the list", READ)
    assert str(price.rounded(Decimal(1)).amount) == "2"
    assert unknown("nobody says").rounded() == unknown("nobody says")


def test_a_price_is_known_where_it_has_an_amount() -> None:
    assert Price(Decimal(0), "USD").is_known is True
    assert unknown("nobody says").is_known is False


def test_what_would_make_a_price_known_is_kept() -> None:
    price = unknown("nobody says.", "Ask somebody.")
    assert (str(price), price.hint) == ("unknown: nobody says", "Ask somebody.")


def test_a_source_without_a_date_is_named_alone() -> None:
    assert Price(Decimal(1), "EUR", "tpuctl.toml, line 3").origin == "tpuctl.toml, line 3"


def test_a_rate_is_of_its_generation_and_of_any_of_its_regions() -> None:
    listed = rates(rate("v3", "2", "us-east1", "europe-west4"))
    assert listed.price(accelerator("v3-8"), "europe-west4-a", spot=False).amount == 8
    assert listed.price(accelerator("v3-8"), "us-east1-d", spot=False).amount == 8
    assert str(listed.price(accelerator("v2-8"), "us-east1-d", spot=True)) == (
        "unknown: the list has no spot price of v2-8 in us-east1"
    )


def test_a_slice_of_two_hosts_has_the_rate_of_slices() -> None:
    listed = rates(rate("v4", "1", "us-central2", slices=True), rate("v4", "2", "us-central2", slices=False))
    assert accelerator("v4-16").hosts == 2
    assert listed.price(accelerator("v4-16"), "us-central2-b", spot=False).amount == 8


def test_a_row_of_another_place_or_type_says_nothing() -> None:
    v3_8 = accelerator("v3-8")
    assert own_price([row("v3-8", "1", "europe-west4")], v3_8, "us-east1-d", spot=False) is None
    assert own_price([row("v3-32", "1"), row("v2", "1")], v3_8, "us-east1-d", spot=False) is None


def test_a_row_may_give_nothing_for_free() -> None:
    free = own_price([row("v3", "1"), row("v3-8", "0")], accelerator("v3-8"), "us-east1-d", spot=False)
    assert free is not None
    assert free.amount == 0


def test_a_rate_of_another_generation_does_not_apply() -> None:
    listed = rates(rate("v2", "1", "us-east1"))
    assert not listed.price(accelerator("v3-8"), "us-east1-d", spot=False).is_known


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


JANUARY, MAY = "2026-01-31T12:00:00Z", "2026-05-31T12:00:00Z"


def dollars(amount: str, source: str = "the list", as_of: str = JANUARY) -> Price:
    return Price(Decimal(amount), "USD", source, as_of)


def euros(amount: str) -> Price:
    return Price(Decimal(amount), "EUR", "tpuctl.toml, line 3")


def test_amounts_of_one_currency_are_added() -> None:
    costs = dollars("1.25"), dollars("2.50"), dollars("0")
    assert Total.of(iter(costs)) == Total((("USD", Decimal("3.75")),), ("the list, 2026-01-31",), (), costs)


def test_currencies_stay_apart_and_are_sorted() -> None:
    total = Total.of([dollars("2"), euros("1"), dollars("3"), euros("4")])
    assert total.amounts == (("EUR", Decimal(5)), ("USD", Decimal(5)))
    assert total.sources == ("the list, 2026-01-31", "tpuctl.toml, line 3")


def test_each_reason_and_each_source_is_named_once_in_the_order_of_the_costs() -> None:
    total = Total.of(
        [
            unknown("nobody says"),
            dollars("1", as_of=MAY),
            unknown("capacity is reserved"),
            dollars("2"),
            dollars("4", as_of=MAY),
            unknown("nobody says"),
        ]
    )
    assert total.reasons == ("nobody says", "capacity is reserved")
    assert total.sources == ("the list, 2026-05-31", "the list, 2026-01-31")
    assert total.amounts == (("USD", Decimal(7)),)


def test_a_price_without_a_source_adds_none() -> None:
    assert Total.of([Price(Decimal(1), "USD")]).sources == ()


def test_the_source_of_an_unknown_price_is_none_of_the_sum() -> None:
    assert Total.of([Price(None, source="the list", reason="nobody says")]).sources == ()


@pytest.mark.parametrize(
    ("costs", "short"),
    [
        ([], "0.00"),
        ([dollars("12.875")], "12.88 USD"),
        ([dollars("0.001"), dollars("0.002")], "0.00 USD"),
        ([dollars("2"), euros("1")], "1.00 EUR + 2.00 USD"),
        ([dollars("3.2"), unknown("nobody says")], "at least 3.20 USD"),
        ([unknown("nobody says")], "unknown"),
    ],
)
def test_the_sum_for_a_column(costs: list[Price], short: str) -> None:
    assert Total.of(costs).short == short


@pytest.mark.parametrize(
    ("costs", "price"),
    [
        ([dollars("1"), dollars("2")], dollars("3")),
        ([dollars("1"), dollars("2", "another list")], dollars("3", "the list; another list")),
        (
            [dollars("1"), dollars("2", as_of=MAY)],
            dollars("3", "the list, 2026-01-31; the list, 2026-05-31", ""),
        ),
        ([euros("1"), euros("2")], euros("3")),
        ([dollars("1"), euros("2")], unknown("it was paid in EUR and USD")),
        ([dollars("1"), unknown("one"), unknown("two")], unknown("one; two")),
        ([], unknown("nothing was used")),
    ],
)
def test_the_sum_as_one_price(costs: list[Price], price: Price) -> None:
    assert Total.of(costs).price == price
