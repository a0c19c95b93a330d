"""Writes pixels as a PNG image without compression, which gives the same bytes with every zlib."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_COLOURS = {1: 0, 3: 2, 4: 6}
"""Channels -> PNG's number for grey, RGB and RGBA."""
CHANNELS = frozenset(_COLOURS)
_STORED = 65_535
"""Bytes of the largest block that deflate stores as it is (RFC 1951)."""


@dataclass(frozen=True)
class RawPng:
    """Images of one shape."""

    height: int
    width: int
    channels: int

    def encode(self, pixels: bytes) -> bytes:
        """Return the image whose bytes, row after row, are `pixels`."""
        lines = np.zeros(
            (self.height, self.width * self.channels + 1), np.uint8
        )  # each begins with its filter
        lines[:, 1:] = np.frombuffer(pixels, np.uint8).reshape(self.height, -1)
        data = lines.tobytes()
        stored = [
            struct.pack("<BHH", start + _STORED >= len(data), len(block), len(block) ^ 0xFFFF) + block
            for start in range(0, len(data), _STORED)
            if (block := data[start : start + _STORED])
        ]
        content = b"".join((b"IDAT\x78\x01", *stored, struct.pack(">I", zlib.adler32(data))))
        checksum = struct.pack(">I", zlib.crc32(content))
        return b"".join((self._head, struct.pack(">I", len(content) - 4), content, checksum, _END))

    @cached_property
    def _head(self) -> bytes:
        shape = struct.pack(
            ">4sIIBBBBB", b"IHDR", self.width, self.height, 8, _COLOURS[self.channels], 0, 0, 0
        )
        return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + shape + struct.pack(">I", zlib.crc32(shape))


_END = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))
