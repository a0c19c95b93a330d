"""TFRecord framing: each record with its length and a checksum of both.

A record is its length (8 bytes, little endian), the masked CRC-32C of these 8 bytes, the record, and its
masked CRC-32C (4 bytes each). Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol, TypeAlias

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tpuctl.errors import UsageError

HEAD = 12
"""Bytes of the framing before a record."""
OVERHEAD = 16
"""Bytes that the framing adds to a record."""
LONGEST = 1 << 30
"""Bytes of the longest record that is read; protobuf, and so TensorFlow, decodes less than twice as much."""

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
MASK_DELTA = 0xA282EAD8
"""Added to each checksum, rotated by 15 bits, modulo 2**32."""


Frames: TypeAlias = tuple[bytes, NDArray[np.int64]]
"""Bytes, and for each record in them a row: where it begins and ends."""


class Readable(Protocol):
    """A stream of bytes; `read` may return fewer than requested, and none at the end."""

    def read(self, size: int, /) -> bytes: ...


def frame(record: bytes) -> bytes:
    """Return the bytes that a TFRecord file holds for `record`."""
    return b"".join(frame_parts(record))


def frame_parts(record: bytes) -> tuple[bytes, bytes, bytes]:
    """Return these bytes in parts, so that the record itself is not copied."""
    return frame_head(len(record)), record, _checksum(record)


def framed_length(head: bytes) -> int | None:
    """Return the length of a record from the first 12 bytes of its frame; None if they are damaged."""
    length, checksum = head[: _LENGTH.size], head[_LENGTH.size :]
    if len(length) < _LENGTH.size or checksum != _checksum(length):
        return None
    (size,) = _LENGTH.unpack(length)
    return int(size)


def is_intact(rest: bytes) -> bool:
    """Whether a record is as it was written; `rest` is its frame without the first 12 bytes."""
    return rest[-_CHECKSUM.size :] == _checksum(rest[: -_CHECKSUM.size])


def read_records(stream: Readable, size: int = LONGEST) -> Iterator[bytes]:
    """Yield the records of a TFRecord stream of at most `size` bytes, where that is known.

    Raises UsageError with the offset of the first damaged record; one that is longer than the stream, or than
    `LONGEST`, is not read.
    """
    offset = 0
    while length := _read(stream, _LENGTH.size, offset, at_end_of_record=True):
        if _read(stream, _CHECKSUM.size, offset) != _checksum(length):
            raise _damaged(offset, "the checksum of its length does not match")
        (count,) = _LENGTH.unpack(length)
        if count > LONGEST:
            raise _damaged(offset, f"it would have {count} bytes, and at most {LONGEST} are read")
        if count > size:
            raise _damaged(offset, "the file ends in the middle of it")
        record = _read(stream, count, offset)
        if _read(stream, _CHECKSUM.size, offset) != _checksum(record):
            raise _damaged(offset, "the checksum of its data does not match")
        yield record
        offset += len(record) + OVERHEAD


def read_frames(stream: Readable, size: int, part: int) -> Iterator[Frames]:
    """Yield the same records many at a time.

    About `part` bytes at once; raises as `read_records`, for all records of those at the same time.
    """
    data, offset, needed = b"", 0, OVERHEAD
    while more := _read_some(stream, max(part, needed - len(data))):
        data += more
        at, needed, bounds = 0, OVERHEAD, list[tuple[int, int]]()
        while len(data) - at >= OVERHEAD:
            (count,), begin = _LENGTH.unpack_from(data, at), at + HEAD
            if data[at:begin] != frame_head(count):
                raise _damaged(offset + at, "the checksum of its length does not match")
            if count > LONGEST:
                raise _damaged(offset + at, f"it would have {count} bytes, and at most {LONGEST} are read")
            if count > size:
                raise _damaged(offset + at, "the file ends in the middle of it")
            end = begin + count
            if end + _CHECKSUM.size > len(data):
                needed = count + OVERHEAD
                break
            if data[end : end + _CHECKSUM.size] != _checksum(data[begin:end]):
                raise _damaged(offset + at, "the checksum of its data does not match")
            bounds.append((begin, end))
            at = end + _CHECKSUM.size
        if bounds:
            yield data, np.array(bounds, np.int64)
        data, offset = data[at:], offset + at
    if data:
        raise _damaged(offset, "the file ends in the middle of it")


def _read_some(stream: Readable, size: int) -> bytes:
    """Read so many bytes, or what is left."""
    parts, left = list[bytes](), size
    while left and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@lru_cache(1 << 14)
def frame_head(size: int) -> bytes:
    """Return the bytes before a record of so many bytes."""
    length = _LENGTH.pack(size)
    return length + _checksum(length)


def _checksum(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    rotated = (crc >> 15) | (crc << 17)
    return _CHECKSUM.pack((rotated + MASK_DELTA) & 0xFFFFFFFF)


def _read(stream: Readable, size: int, offset: int, *, at_end_of_record: bool = False) -> bytes:
    """Read exactly `size` bytes, however few come at a time; at the end of a record, none are valid, too."""
    data = stream.read(size)
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            break
        data += more
    if len(data) == size or (at_end_of_record and not data):
        return data
    raise _damaged(offset, "the file ends in the middle of it")


def _damaged(offset: int, reason: str) -> UsageError:
    return UsageError(
        f"The record at byte {offset} is damaged: {reason}.",
        hint="If this is not a TFRecord file, give the right one; else make or copy it again.",
        offset=offset,
    )
