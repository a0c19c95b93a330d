"""Tells of a message of Arrow's streams whether its buffers are compressed, before they are unpacked.

A message is a table of FlatBuffers (Message.fbs of Arrow): a table begins with how far before it its list of
offsets is, which has two sizes and an offset for each field.
"""

from __future__ import annotations

import struct

_KIND, _HEADER = 1, 2
"""Fields of a message."""
_DICTIONARY, _BATCH = 2, 3
"""Kinds of messages that have buffers."""
_DATA = 1
"""Field of a dictionary: its batch."""
_COMPRESSION = 3
"""Field of a batch."""


def is_packed(message: bytes) -> bool:
    """Return whether a message, which Arrow has verified, is a compressed batch or dictionary."""
    table = _target(message, 0)
    kind = _field(message, table, _KIND)
    if not kind or message[kind] not in (_DICTIONARY, _BATCH):
        return False
    batch = _target(message, _field(message, table, _HEADER))
    if message[kind] == _DICTIONARY:
        batch = _target(message, _field(message, batch, _DATA))
    return bool(_field(message, batch, _COMPRESSION))


def _target(message: bytes, at: int) -> int:
    """Return where that is to which an offset points."""
    return at + int(struct.unpack_from("<I", message, at)[0])


def _field(message: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0 where it has none."""
    offsets = table - struct.unpack_from("<i", message, table)[0]
    (size,) = struct.unpack_from("<H", message, offsets)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", message, offsets + place) if place < size else (0,)
    return table + int(offset) if offset else 0
