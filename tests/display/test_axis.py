"""Tests the numbers that stand at axes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.display.axis import axis_of, number


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 10], [0, 2, 4, 6, 8, 10]),
        ([0.12, 2.31], [0.5, 1.0, 1.5, 2.0]),
        ([100, 1000], [200, 400, 600, 800, 1000]),
        ([-3, 3], [-3, -2, -1, 0, 1, 2, 3]),
        ([10, 990], [200, 400, 600, 800]),
    ],
)
def test_ticks_are_round_numbers_in_the_range(values: list[float], ticks: list[float]) -> None:
    assert axis_of(values).ticks == pytest.approx(ticks)


def test_a_single_value_is_in_the_middle() -> None:
    assert axis_of([5.0]).share(5.0) == pytest.approx(0.5)
    assert axis_of([0.0, 0.0]).share(0.0) == pytest.approx(0.5)


def test_values_too_far_apart_are_refused() -> None:
    with pytest.raises(OverflowError):
        axis_of([-1.7e308, 1.7e308])


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=5))
def test_every_value_is_on_the_axis_and_ticks_are_few(values: list[float]) -> None:
    axis = axis_of(values)
    assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value in values)
    assert len(axis.ticks) <= 8
    assert all(math.isfinite(tick) for tick in axis.ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (1000, "1000"), (20_000, "20k"), (1.5e6, "1.5M"), (2e9, "2G"), (-3e4, "-30k")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
