"""Sums of costs: currencies stay apart, and what is missing in a sum is said."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.totals import Total

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
