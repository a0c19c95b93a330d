"""Compares copies by size and checksum, in a bucket, a file or memory."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import msgspec

_BLOCK = 1 << 20
MD5, METADATA = "md5Hash", "metadata"
"""What a listing of a bucket says of each object where it is asked for."""


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes in memory."""
    return int(google_crc32c.value(data))


class Content(msgspec.Struct, frozen=True):
    """Size and checksum of some bytes; two copies are taken for equal when both are."""

    size: int
    """In bytes."""
    crc32c: str
    """CRC-32C as Cloud Storage writes it: base64 of the big-endian number."""

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Return the content of bytes in memory."""
        digest = ContentDigest()
        digest.update(data)
        return digest.content()

    @classmethod
    def of_file(cls, path: Path) -> Content:
        """Return the content of a file, read in blocks; raises OSError."""
        with path.open("rb") as file:
            return cls.of_stream(file)

    @classmethod
    def of_stream(cls, stream: BinaryIO, *, most: int | None = None) -> Content:
        """Return the content of a stream, read in blocks, or of its first bytes once they exceed `most`."""
        digest = ContentDigest()
        while (most is None or digest.size <= most) and (block := stream.read(_BLOCK)):
            digest.update(block)
        return digest.content()

    def difference(self, expected: Content) -> tuple[str, object, object] | None:
        """Return the first field that differs, its value and the expected one; None for equal content."""
        if self.size != expected.size:
            return "bytes", self.size, expected.size
        return None if self == expected else ("crc32c", self.crc32c, expected.crc32c)


class ContentDigest:
    """Computes the content of bytes that arrive in pieces, as hashlib's objects do."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all pieces so far."""
        self._crc32c = 0

    def update(self, data: bytes) -> None:
        """Add the next piece."""
        self.size += len(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)

    def append(self, following: ContentDigest) -> None:
        """Add bytes that follow, which another digest has taken."""
        if not self.size:
            self.size, self._crc32c = following.size, following._crc32c
            return
        self.size += following.size
        self._crc32c = _times(_power(following.size), self._crc32c) ^ following._crc32c

    def content(self) -> Content:
        """Return the content of all pieces so far."""
        return Content(self.size, base64.b64encode(self._crc32c.to_bytes(4, "big")).decode())


_POLYNOMIAL = 0x82F63B78
"""Castagnoli's without its x**32; bit 31 is the coefficient of 1, bit 0 that of x**31."""
_ONE, _X8 = 1 << 31, 1 << 23


def _times(first: int, second: int) -> int:
    """Return the product of two polynomials over GF(2), modulo Castagnoli's."""
    product = 0
    for bit in range(31, -1, -1):
        if first >> bit & 1:
            product ^= second
        second = second >> 1 ^ (_POLYNOMIAL if second & 1 else 0)
    return product


def _power(size: int) -> int:
    """Return x**(8 * size): the CRC of some bytes times this is their part in that of `size` bytes more."""
    power, square = _ONE, _X8
    while size:
        if size & 1:
            power = _times(power, square)
        square, size = _times(square, square), size >> 1
    return power
