from __future__ import annotations

import math

import numpy as np
import pytest

from tpuctl.data.analysis.contents import Moments, Series


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e9])
def test_moments_in_pieces_are_those_of_all_numbers(scale: float) -> None:
    numbers = rng().normal(1e6, scale, 10_000)
    total = Moments()
    for piece in np.array_split(numbers, [0, 1, 7, 5_000, 5_000, 9_999]):
        total += Moments.of(piece)
    assert total.count == 10_000
    assert total.mean == pytest.approx(numbers.mean(), rel=1e-14)
    assert total.deviation == pytest.approx(numbers.std(), rel=1e-6)
    assert (total.least, total.most) == (numbers.min(), numbers.max())


def test_numbers_that_come_one_by_one_are_added_up() -> None:
    series = Series()
    numbers = rng().integers(0, 1000, 10_000)
    for number in numbers.tolist():
        series.add(number)
    assert series.moments.mean == pytest.approx(numbers.mean(), rel=1e-13)
    assert series.moments.deviation == pytest.approx(numbers.std(), rel=1e-13)
    assert repr(Series().moments) == repr(Moments()), "no mean is NaN, which is not equal to itself"


def test_a_histogram_has_the_moments_of_its_pixels() -> None:
    pixels = rng().integers(0, 256, 100_000)
    moments = Moments.of_histogram(np.bincount(pixels, minlength=256).tolist()).scaled(1 / 255)
    assert moments.mean == pytest.approx((pixels / 255).mean(), rel=1e-14)
    assert moments.deviation == pytest.approx((pixels / 255).std(), rel=1e-13)
    assert (moments.count, moments.least, moments.most) == (100_000, 0.0, 1.0)


def test_missing_numbers_are_counted_and_left_out() -> None:
    moments = Moments.of(np.array([1.0, math.nan, 3.0])) + Moments.of(np.array([math.nan]))
    assert (moments.count, moments.mean, moments.missing) == (2, 2.0, 2)
    assert math.isnan(Moments.of(np.array([math.nan])).mean)
    assert Moments.of_histogram([0] * 256).count == 0
