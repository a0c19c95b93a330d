"""Reads the orientation of a picture from its EXIF data: a camera stores how it was held."""

from __future__ import annotations

import struct

_TAG = 0x0112
_ORDERS = {b"II": "<", b"MM": ">"}
_WRITTEN = {"<": b"\x12\x01\x03\x00", ">": b"\x01\x12\x00\x03"}
"""Byte order -> how the tag and its type, a short, are written."""
_UPRIGHT = 1


def orientation(exif: bytes) -> int:
    """Return the orientation, 1 (upright) to 8, in EXIF data from its TIFF header on; 1 where it has none."""
    order = _ORDERS.get(exif[:2])
    if order is None or _WRITTEN[order] not in exif:
        return _UPRIGHT
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, at)
            if tag == _TAG:
                return value if 1 <= value <= 8 else _UPRIGHT
    except struct.error:
        pass  # damaged data says nothing
    return _UPRIGHT
