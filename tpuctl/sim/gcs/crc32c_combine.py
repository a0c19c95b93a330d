"""The CRC-32C of two pieces of data put together, from those of the pieces alone, as zlib does it."""

from __future__ import annotations

from functools import lru_cache

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, bits reversed."""

Matrix = tuple[int, ...]
"""32 columns over GF(2): how one CRC register follows from another."""


def combined_crc32c(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32C of data whose first part has the one and whose second part has the other."""
    power = 0
    while second_size:
        if second_size & 1:
            first = _times(_zero_bytes(power), first)
        second_size >>= 1
        power += 1
    return first ^ second


@lru_cache(maxsize=64)
def _zero_bytes(power: int) -> Matrix:
    """What 2**power zero bytes do to a CRC register."""
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
