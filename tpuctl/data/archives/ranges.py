"""Ranges of bytes that lie in an archive, in memory or in a temporary file."""

from __future__ import annotations

import os

from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.trees.tree import Ranges

_MOST_HELD = 8 << 20
"""Bytes of a member that are held in memory."""


class PartRanges:
    """A part of other ranges, which stay open when this is closed."""

    def __init__(self, whole: Ranges, begin: int, size: int) -> None:
        self._whole = whole
        self._begin = begin
        self._size = size

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        return self._whole.read(self._begin + at, max(min(size, self._size - at), 0))

    def close(self) -> None:
        """As `Ranges.close`."""


class HeldRanges:
    """The content of a member that had to be unpacked, in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        return self._content[at : at + size]

    def close(self) -> None:
        """As `Ranges.close`."""


class TempRanges:
    """What was unpacked to a temporary file."""

    def __init__(self, file: TempFile) -> None:
        self._file = file
        self._descriptor = file.finish()

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        return os.pread(self._descriptor, size, at)

    def close(self) -> None:
        """As `Ranges.close`."""
        self._file.close()


def held(content: bytes) -> Ranges:
    """Return ranges of what was unpacked: in memory, or in a temporary file where it is much."""
    if len(content) <= _MOST_HELD:
        return HeldRanges(content)
    file = TempFile()
    try:
        file.append(content)
        return TempRanges(file)
    except BaseException:
        file.close()
        raise
