"""Compares copies by size and checksum, in a bucket, a file or memory."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import msgspec

_BLOCK = 1 << 20


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

    def content(self) -> Content:
        """Return the content of all pieces so far."""
        return Content(self.size, base64.b64encode(self._crc32c.to_bytes(4, "big")).decode())
