"""Computes the CRC-32C of concatenated data from those of the pieces, as zlib's crc32_combine does."""

from __future__ import annotations

from functools import lru_cache

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with its bits reversed."""

Matrix = tuple[int, ...]
"""32 columns over GF(2): the next CRC register as a linear function of the last."""


def combine_crc32c(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32C of data whose first and second part have these CRC-32Cs."""
    power = 0
    while second_size:
        if second_size & 1:
            first = _times(_zero_bytes(power), first)
        second_size >>= 1
        power += 1
    return first ^ second


@lru_cache(maxsize=64)
def _zero_bytes(power: int) -> Matrix:
    """The effect of 2**power zero bytes on a CRC register."""
    if power == 0:
        one_bit: Matrix = (POLYNOMIAL, *(1 << bit for bit in range(31)))
        two_bits = _squared(one_bit)
        return _squared(_squared(two_bits))
    return _squared(_zero_bytes(power - 1))


def _squared(matrix: Matrix) -> Matrix:
    return tuple(_times(matrix, column) for column in matrix)


def _times(matrix: Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
    return total
