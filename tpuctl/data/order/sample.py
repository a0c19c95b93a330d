"""Draws a random sample of records that are read in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.order.permutation import Permutation


@dataclass(frozen=True)
class Sample:
    """Which records are read."""

    places: NDArray[np.int64] | None
    """In their order; None for all."""

    def place(self, number: int) -> int:
        """Return the place of the record that is the `number`th of the sample."""
        return number if self.places is None else int(self.places[number])

    def within(self, first: int, count: int) -> NDArray[np.int64]:
        """Return which of so many records from `first` on are in the sample, counted from 0."""
        if self.places is None:
            return np.arange(count)
        bounds = np.searchsorted(self.places, (first, first + count))
        return self.places[bounds[0] : bounds[1]] - first

    def filter(self, records: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the records of the sample; after the last of them no more are read."""
        if self.places is None:
            yield from records
            return
        upcoming = iter(self.places.tolist())
        next_place = next(upcoming, None)
        for place, record in enumerate(records):
            if place == next_place:
                yield record
                next_place = next(upcoming, None)
            if next_place is None:
                return


def sample_of(records: int, most: int | None, seed: int) -> Sample:
    """Return a sample of at most so many of the records; None: all."""
    if most is None or most >= records:
        return Sample(None)
    return Sample(np.sort(Permutation(records, seed, "sample")(np.arange(most))))
