"""PNG images of any size in a few kilobytes, made to fill the memory of a program that decodes them."""

from __future__ import annotations

import struct
import zlib

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Colour type of a PNG -> samples of a pixel."""


def blank_png(width: int, height: int, *, depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG whose pixels are all zero."""
    row = bytes((width * CHANNELS[colour] * depth + 7) // 8 + 1)
    packer = zlib.compressobj(9)
    content = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    palette = [_chunk(b"PLTE", bytes(6))] * (colour == 3)
    return b"".join(
        (b"\x89PNG\r\n\x1a\n", header(width, height, depth, colour), *palette, _chunk(b"IDAT", content), _END)
    )


def header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """Return the chunk that says how large an image is."""
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_END = _chunk(b"IEND", b"")
