"""Computes a seeded permutation without storing it, for any number of records."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Those of splitmix64's finalizer (Steele, Lea and Flood, 2014)."""


class Permutation:
    """An order of `range(size)` that depends on its arguments alone, on no library's generator.

    A Feistel network over the next power of two; a result outside is permuted again until it falls inside
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): less than twice on average.
    """

    def __init__(self, size: int, seed: int, purpose: str) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._widths = (bits // 2, bits - bits // 2)
        digest = blake2b(f"{purpose}:{seed}:{size}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, "<u8").astype(np.uint64)

    def __call__(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the number at each of these positions."""
        places = self._once(positions.astype(np.uint64))
        outside = np.flatnonzero(places >= np.uint64(self.size))
        while len(outside):
            again = self._once(places[outside])
            places[outside] = again
            outside = outside[again >= np.uint64(self.size)]
        return places.astype(np.int64)

    def _once(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        low, high = self._widths
        right_half, left_half = values & _mask(low), values >> np.uint64(low)
        for key in self._keys:
            left_half, right_half = right_half, left_half ^ (_mixed(right_half, key) & _mask(high))
            low, high = high, low
        joined: NDArray[np.uint64] = (left_half << np.uint64(low)) | right_half
        return joined


def _mixed(values: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    mixed: NDArray[np.uint64] = (values + key) * _MULTIPLIERS[0]
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _mask(bits: int) -> np.uint64:
    mask: np.uint64 = np.uint64((1 << bits) - 1)
    return mask
