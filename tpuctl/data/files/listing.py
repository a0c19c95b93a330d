"""Stores names, sizes and times of files in a few bytes each, for millions of files."""

from __future__ import annotations

import errno
import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.source import Indices, changed
from tpuctl.errors import UsageError
from tpuctl.polling import Sleep

LARGEST = 1 << 30
"""Bytes of the largest file that becomes one record."""
_TICK = 20_000_000
"""Nanoseconds within which a file system may give two writes the same time (Linux: up to 10 ms)."""


class Folder(NamedTuple):
    """A folder whose files follow one another in the list."""

    path: str
    """Below the root, with `/`; empty for the root itself."""
    split: str
    label: str


class Listing:
    """Files below `root`, in folders; grows by `add`, and is read by index afterwards."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: list[Folder] = []
        self._bounds = array("q")  # index of each folder's first file
        self._names = bytearray()
        self._ends = array("q", [0])
        self._sizes = array("q")
        self._times = array("q")

    def __len__(self) -> int:
        return len(self._sizes)

    def start(self, folder: Folder) -> None:
        """Begin a folder: files that are added from now on lie in it."""
        self.folders.append(folder)
        self._bounds.append(len(self))

    def add(self, name: str, status: os.stat_result) -> None:
        """Add a file of the folder last begun."""
        self._names += name.encode()
        self._ends.append(len(self._names))
        self._sizes.append(status.st_size)
        self._times.append(modified(status))

    def key(self, index: int) -> str:
        """Return a file's path below the root, with `/`."""
        name = self._names[self._ends[index] : self._ends[index + 1]].decode()
        folder = self.folders[self.folder_of(index)].path
        return f"{folder}/{name}" if folder else name

    def folder_of(self, index: int) -> int:
        """Return the number of the folder that a file is in."""
        return bisect_right(self._bounds, index) - 1

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Index of each folder's first file."""
        return np.frombuffer(self._bounds, np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of files of each folder."""
        return np.diff(np.append(self.bounds, len(self)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each file."""
        return np.frombuffer(self._sizes, np.int64)

    @property
    def times(self) -> NDArray[np.int64]:
        """When each file was last written to, in nanoseconds."""
        return np.frombuffer(self._times, np.int64)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the names and sizes, in order."""
        digest = sha256("\n".join(folder.path for folder in self.folders).encode())
        for part in (self._bounds, self._names, self._ends, self._sizes):
            digest.update(part)
        return digest.hexdigest()

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that change when any of these files is written to, replaced or renamed."""
        names = b"\0".join(self.key(index).encode() for index in indices.tolist())
        return b"".join((names, self.sizes[indices].tobytes(), self.times[indices].tobytes()))

    def read(self, index: int) -> bytes:
        """Return a file's bytes; raises UsageError (`changed`) if it was written to since, OSError."""
        path = os.path.join(self.root, self.key(index))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            listed = (self._sizes[index], self._times[index])
            if status.st_size > LARGEST:
                size = f"it has {status.st_size} bytes, and at most {LARGEST} are read"
                raise OSError(errno.EFBIG, size, path)
            data = os.read(descriptor, status.st_size + 1)
            while 0 < len(data) < status.st_size and (
                more := os.read(descriptor, status.st_size - len(data))
            ):
                data += more
            if listed != (len(data), modified(status)):
                raise changed(self.key(index), "has changed")
            return data
        finally:
            os.close(descriptor)

    def wait_past_newest(self, sleep: Sleep = time.sleep, now: Callable[[], int] = time.time_ns) -> None:
        """Wait until any later write gets a later time than all files have; called once, at the end."""
        newest = max(self._times, default=0)
        if 0 <= (remaining := newest + _TICK - now()) <= _TICK:
            sleep(remaining / 1e9)

    def check(self, again: Listing) -> None:
        """Raise UsageError (`changed`) that names a file which is not the same in a later listing."""
        if self._same(again):
            return
        before, now = dict(self._described()), dict(again._described())
        for name, status in before.items():
            if name not in now:
                raise changed(name, "was removed")
            if now[name] != status:
                raise changed(name, "has changed")
        raise changed(min(now.keys() - before.keys()), "is new")

    def _same(self, other: Listing) -> bool:
        return self.folders == other.folders and all(
            getattr(self, part) == getattr(other, part)
            for part in ("_bounds", "_names", "_ends", "_sizes", "_times")
        )

    def _described(self) -> Iterator[tuple[str, tuple[int, int]]]:
        return ((self.key(index), (self._sizes[index], self._times[index])) for index in range(len(self)))


def modified(status: os.stat_result) -> int:
    """Return when a file was last written to or replaced, in nanoseconds."""
    return max(status.st_mtime_ns, status.st_ctime_ns)


def unreadable(name: str, error: OSError) -> UsageError:
    """Return the error for a file or folder that cannot be read."""
    return UsageError(
        f"Cannot read '{name}': {error.strerror}.",
        hint="Check that it still exists, and its permissions.",
        file=name,
    )
