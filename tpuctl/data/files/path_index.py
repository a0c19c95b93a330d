"""Finds files by their paths, or by a part of them, in 12 bytes for each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator

import numpy as np


class PathIndex:
    """The numbers of files by a key, such as the path of each."""

    def __init__(self, count: int, key: Callable[[int], str]) -> None:
        """`key` returns that of a file by its number, of which there are so many."""
        self._key = key
        hashes = np.fromiter((hash(key(number)) for number in range(count)), np.int64, count)
        order = np.argsort(hashes, kind="stable")
        self._hashes = array("q", hashes[order].tobytes())
        self._numbers = array("i", order.astype(np.intc).tobytes())

    def find(self, key: str) -> Iterator[int]:
        """Yield the numbers of the files with this key, in ascending order."""
        wanted = hash(key)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            if self._key(self._numbers[place]) == key:
                yield self._numbers[place]
            place += 1

    def first(self, key: str) -> int | None:
        """Return the first of these numbers; None without any."""
        return next(self.find(key), None)

    def repeats(self) -> Iterator[int]:
        """Yield the numbers of the files whose key an earlier one has."""
        hashes = np.frombuffer(self._hashes, np.int64)
        for place in (np.flatnonzero(hashes[1:] == hashes[:-1]) + 1).tolist():
            number = self._numbers[place]
            if self.first(self._key(number)) != number:
                yield number
