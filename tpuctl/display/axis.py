"""Chooses the numbers that stand at an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_LARGE = 1e4
"""From here on numbers are written with a letter."""


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and the numbers at it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return how far along the axis a value is, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def axis_of(values: Iterable[float], most: int = 5) -> Axis:
    """Return an axis that holds finite values, with about `most` round numbers.

    Raises OverflowError where the values are too far apart for arithmetic.
    """
    low, high = _range(list(values))
    if not math.isfinite(high - low):
        raise OverflowError("the values are too far apart to be drawn")
    step = _round_step((high - low) / (most + 1))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return Axis(low, high, tuple((first + number) * step for number in range(count)))


def number(value: float) -> str:
    """Return a number for an axis: `0.25`, `20k`, `1.5M`."""
    for size, letter in _SIZES:
        if abs(value) >= max(size, _LARGE):
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}" if value else "0"


def _range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = abs(low) / 10 or 0.5  # one value, or the same everywhere: it is drawn in the middle
    return low - margin, high + margin


def _round_step(smallest: float) -> float:
    """Return 1, 2 or 5 times a power of ten, which is at least so much."""
    power = 10.0 ** math.floor(math.log10(smallest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= smallest * (1 - 1e-9))
