"""Defines the interface of all trees of files: scanned folders, and bytes of the files that were listed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple, Protocol

from tpuctl.bucket_objects import UNKNOWN

LARGEST = 1 << 30
"""Bytes of the largest file that becomes one record."""

Kind = Literal["file", "folder", "other"]


class Entry(NamedTuple):
    """What a folder holds under one name."""

    name: str
    kind: Kind
    size: int = 0
    """Bytes of a file."""
    stamp: int = 0
    """Of a file: another number after each write; a time in nanoseconds, or a generation."""
    problem: str = ""
    """Why it cannot be read, to complete a sentence about it: `is a link that leads nowhere`."""
    checksum: int = UNKNOWN
    """CRC-32C of a file, where the listing says it: what `read` returns has it."""


class ListedFile(NamedTuple):
    """A file as it was listed: its path below the root, with `/`, and what `Entry` says of it."""

    path: str
    size: int
    stamp: int
    checksum: int = UNKNOWN


class Ranges(Protocol):
    """A file that is open for reading at any place, from many threads."""

    def read(self, at: int, size: int) -> bytes:
        """Return `size` bytes from place `at`; fewer only where the file ends."""

    def close(self) -> None:
        """Release it."""


class Tree(Protocol):
    """Files below a root; paths are relative to it, with `/`, and empty for the root itself.

    What has happened to a file since it was listed is told by its size and stamp: `read`, `open` and `check`
    raise UsageError (`source.changed`) for another. Errors of a local disk are OSError, those of a service
    TpuctlError. All methods may be called from many threads.
    """

    @property
    def name(self) -> str:
        """Last part of where it lies, for messages: `people.csv`."""

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to a service."""

    @property
    def only(self) -> str:
        """Path of the file that is all of the source; empty where that is a folder."""

    def __str__(self) -> str:
        """Return where it lies, as a user types it; that of the only file."""

    def scan(self, folder: str) -> list[Entry]:
        """Return what is directly in a folder, by name; what begins with a dot is left out."""

    def look(self, path: str) -> Entry | None:
        """Return what is at a path; None where there is nothing."""

    def read(self, file: ListedFile) -> bytes:
        """Return a file's bytes; raises OSError (EFBIG) for more than `LARGEST`."""

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """Yield the bytes of each file in turn, or the error of reading it; some are fetched ahead."""

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """Yield at least the first `size` bytes of each file in turn, all of a smaller one, or the error."""

    def open(self, file: ListedFile) -> Ranges:
        """Open a file to read it at any place."""

    def stream(self, file: ListedFile) -> IO[bytes]:
        """Open a file to read it from its beginning on; it can be sought in."""

    def local_path(self, file: ListedFile) -> Path | None:
        """Return where a file lies on this disk, for libraries that read it by path; None for nowhere."""

    def check(self, file: ListedFile) -> None:
        """Raise UsageError (`changed`) if a file was removed or modified since the listing."""

    def below(self, folder: str) -> Tree:
        """Return the tree with a folder as its root."""

    def again(self) -> Tree:
        """Return the same tree to list it anew, without anything that was remembered of it."""

    def settle(self, newest: int) -> None:
        """Wait until any later write gives a file a stamp after `newest`."""


class RangeStream(io.RawIOBase):
    """A file open at ranges, as a stream: buffer it, each read is a request."""

    def __init__(self, ranges: Ranges, size: int) -> None:
        self._ranges = ranges
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a buffer of BufferedReader
        data = self._ranges.read(self._at, min(len(buffer), max(self._size - self._at, 0)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._ranges.close()
        super().close()
