"""Tests the numbers that stand at axes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.display.metrics import axis_of, number


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 10], [0, 2, 4, 6, 8, 10]),
        ([0.12, 2.31], [0.5, 1.0, 1.5, 2.0]),
        ([100, 1000], [200, 400, 600, 800, 1000]),
        ([-3, 3], [-3, -2, -1, 0, 1, 2, 3]),
        ([10, 990], [200, 400, 600, 800]),
        ([0, 13], [0, 5, 10]),
        ([0, 36], [0, 10, 20, 30]),
        ([0, 50], [0, 10, 20, 30, 40, 50]),
        ([0.2, 0.25], [0.2, 0.21, 0.22, 0.23, 0.24, 0.25]),
    ],
)
def test_ticks_are_round_numbers_in_the_range(values: list[float], ticks: list[float]) -> None:
    assert axis_of(values).ticks == pytest.approx(ticks)


def test_a_single_value_is_in_the_middle() -> None:
    assert axis_of([5.0]).share(5.0) == pytest.approx(0.5)
    assert axis_of([0.0, 0.0]).share(0.0) == pytest.approx(0.5)


@pytest.mark.parametrize(("most", "ticks"), [(2, [0, 5, 10]), (4, [0, 5, 10]), (5, [0, 2, 4, 6, 8, 10])])
def test_there_are_about_as_many_ticks_as_are_asked_for(most: int, ticks: list[float]) -> None:
    assert axis_of([0, 11], most).ticks == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([5.0], 4.5, 5.5),
        ([-20.0, -20.0], -22.0, -18.0),
        ([0.0], -0.5, 0.5),
        ([1.0, 1.0 + 1e-12], 0.9, 1.1),
        ([-1.0 - 1e-12, -1.0], -1.1, -0.9),
        ([1.0, 1.001], 1.0, 1.001),
        ([-1e-30, 1e-30], -1e-30, 1e-30),
        ([3.0, -2.0, 0.0], -2.0, 3.0),
    ],
)
def test_an_axis_ends_at_its_values_and_a_tenth_around_a_single_one(
    values: list[float], low: float, high: float
) -> None:
    axis = axis_of(iter(values))
    assert (axis.low, axis.high) == pytest.approx((low, high), rel=1e-9, abs=0)
    assert (axis.share(axis.low), axis.share(axis.high)) == (0, 1)


def test_values_too_far_apart_are_refused() -> None:
    with pytest.raises(OverflowError, match="too far apart to be drawn"):
        axis_of([-1.7e308, 1.7e308])
    assert axis_of([1e308, 1.7e308]).ticks == pytest.approx([1e308, 1.2e308, 1.4e308, 1.6e308])


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=5))
def test_every_value_is_on_the_axis_and_ticks_are_few(values: list[float]) -> None:
    axis = axis_of(values)
    assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value in values)
    assert len(axis.ticks) <= 8
    assert all(math.isfinite(tick) for tick in axis.ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (1000, "1000"), (20_000, "20k"), (1.5e6, "1.5M"), (2e9, "2G"), (-3e4, "-30k"),
     (9999, "9999"), (-9999, "-9999"), (10_000, "10k"), (900_000, "900k"), (1_000_000, "1M"), (9e8, "900M"),
     (1e9, "1G"), (-1e9, "-1G"), (12_345, "12.35k"), (1 / 3, "0.3333"), (-0.0, "0"), (1e-5, "1e-05")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
