"""Adds up means and standard deviations piece by piece, without losing digits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_HELD = 4096
"""Numbers that are added up at once."""


@dataclass(frozen=True)
class Moments:
    """Count, mean, deviation and bounds of numbers; of none, the mean is NaN."""

    count: int = 0
    mean: float = math.nan
    squares: float = 0.0
    """Sum of the squared distances from the mean."""
    least: float = math.inf
    most: float = -math.inf
    missing: int = 0
    """NaN, which are not counted."""

    @classmethod
    def of(cls, values: NDArray[np.number]) -> Moments:
        """Return those of an array."""
        numbers = np.asarray(values, np.float64).ravel()
        present = numbers[~np.isnan(numbers)]
        missing = len(numbers) - len(present)
        if not len(present):
            return cls(missing=missing)
        mean = float(present.mean())
        squares = float(((present - mean) ** 2).sum())
        return cls(len(present), mean, squares, float(present.min()), float(present.max()), missing)

    @classmethod
    def of_histogram(cls, counts: list[int]) -> Moments:
        """Return those of whole numbers from 0 on, from how often each occurs: the sums are exact."""
        count = sum(counts)
        if not count:
            return cls()
        total = sum(value * times for value, times in enumerate(counts))
        square = sum(value * value * times for value, times in enumerate(counts))
        present = [value for value, times in enumerate(counts) if times]
        squares = (count * square - total * total) / count
        return cls(count, total / count, squares, float(present[0]), float(present[-1]))

    def __add__(self, other: Moments) -> Moments:
        """Return those of all numbers of both: Chan, Golub and LeVeque (1979)."""
        missing = self.missing + other.missing
        if not self.count or not other.count:
            more = other if other.count else self
            return Moments(more.count, more.mean, more.squares, more.least, more.most, missing)
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * other.count / count
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        return Moments(
            count, mean, squares, min(self.least, other.least), max(self.most, other.most), missing
        )

    @property
    def deviation(self) -> float:
        """Standard deviation of these numbers, not of what they are a sample of."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan

    def scaled(self, factor: float) -> Moments:
        """Return those of the numbers times a positive factor."""
        return Moments(
            self.count, self.mean * factor, self.squares * factor * factor,
            self.least * factor, self.most * factor, self.missing,
        )  # fmt: skip


@dataclass
class Series:
    """Numbers that come one by one."""

    _total: Moments = Moments()
    _recent: list[float] = field(default_factory=list)

    def add(self, *values: float) -> None:
        """Add numbers."""
        self._recent += values
        if len(self._recent) >= _HELD:
            self.flush()

    def add_all(self, values: NDArray[np.number]) -> None:
        """Add many numbers."""
        self.flush()
        self._total += Moments.of(values)

    @property
    def moments(self) -> Moments:
        """Those of all numbers so far."""
        self.flush()
        return self._total

    def flush(self) -> None:
        """Add up the numbers that are held."""
        if self._recent:
            self._total += Moments.of(np.array(self._recent, np.float64))
            self._recent.clear()
