"""Parses the Range of a download, and selects the bytes of the object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tpuctl.sim.gcs.errors import GcsError

PIECE = 256 << 10
"""Bytes read at a time where sendfile cannot be used."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class ByteRange:
    """The bytes from `start` up to `end` of an object; `partial` if a Range header selects them."""

    start: int
    end: int
    partial: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start

    def read(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the bytes of the range in pieces."""
        file.seek(self.start)
        remaining = self.size
        while remaining and (piece := file.read(min(PIECE, remaining))):
            remaining -= len(piece)
            yield piece


def parse_range(header: str | None, size: int) -> ByteRange:
    """Return the bytes that a Range header selects; raises 416.

    All bytes without a header, and for an invalid one or one with several ranges.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match[0] == "bytes=-":
        return ByteRange(0, size)
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= size or (first and last and int(last) < int(first)):
        raise GcsError(416, "The requested range cannot be satisfied.")
    return ByteRange(start, end, partial=True)
