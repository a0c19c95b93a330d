"""Stores names, sizes and stamps of files in a few bytes each, for millions of files."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.source import Indices, changed
from tpuctl.data.trees.tree import Entry, ListedFile, Tree
from tpuctl.errors import UsageError


class Folder(NamedTuple):
    """A folder whose files follow one another in the list."""

    path: str
    """Below the root, with `/`; empty for the root itself."""
    split: str
    label: str


class Listing:
    """Files of a tree, in folders; grows by `add`, and is read by index afterwards."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.folders: list[Folder] = []
        self._bounds = array("q")  # index of each folder's first file
        self._names = bytearray()
        self._ends = array("q", [0])
        self._sizes = array("q")
        self._stamps = array("q")
        self._checksums = array("q")

    def __len__(self) -> int:
        return len(self._sizes)

    def start(self, folder: Folder) -> None:
        """Begin a folder: files that are added from now on lie in it."""
        self.folders.append(folder)
        self._bounds.append(len(self))

    def add(self, entry: Entry) -> None:
        """Add a file of the folder last begun."""
        self._names += entry.name.encode()
        self._ends.append(len(self._names))
        self._sizes.append(entry.size)
        self._stamps.append(entry.stamp)
        self._checksums.append(entry.checksum)

    def by_folder(self) -> Listing:
        """Return the files in the order of their folders' paths; those of one folder stay in their order."""
        result, ends = Listing(self.tree), [*self._bounds, len(self)]
        for number in sorted(range(len(self.folders)), key=lambda number: self.folders[number].path):
            folder = self.folders[number]
            if not result.folders or result.folders[-1] != folder:
                result.start(folder)
            result._extend(self, ends[number], ends[number + 1])
        return result

    def _extend(self, other: Listing, start: int, end: int) -> None:
        """Add some files of another listing."""
        begin = other._ends[start]
        shift = len(self._names) - begin
        self._names += other._names[begin : other._ends[end]]
        self._ends.extend(place + shift for place in other._ends[start + 1 : end + 1])
        for mine, others in (
            (self._sizes, other._sizes),
            (self._stamps, other._stamps),
            (self._checksums, other._checksums),
        ):
            mine.extend(others[start:end])

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
    def stamps(self) -> NDArray[np.int64]:
        """`Entry.stamp` of each file."""
        return np.frombuffer(self._stamps, np.int64)

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
        return b"".join((names, self.sizes[indices].tobytes(), self.stamps[indices].tobytes()))

    def file(self, index: int) -> ListedFile:
        """Return a file as it was listed."""
        return ListedFile(self.key(index), self._sizes[index], self._stamps[index], self._checksums[index])

    def read(self, index: int) -> bytes:
        """Return a file's bytes; raises UsageError (`changed`) if it was written to since, OSError."""
        return self.tree.read(self.file(index))

    def read_each(self, indices: Indices) -> Iterator[bytes | OSError]:
        """Yield the bytes of each file, or why it cannot be read, as `Tree.read_each`; faster than `read`."""
        return self.tree.read_each([self.file(index) for index in indices.tolist()])

    def read_heads(self, indices: Indices, size: int) -> Iterator[bytes | OSError]:
        """Yield at least the first `size` bytes of each file, as `Tree.read_heads`."""
        return self.tree.read_heads([self.file(index) for index in indices.tolist()], size)

    def wait_past_newest(self) -> None:
        """Wait until any later write gets a later time than all files have; called once, at the end."""
        self.tree.settle(max(self._stamps, default=0))

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
            for part in ("_bounds", "_names", "_ends", "_sizes", "_stamps")
        )

    def _described(self) -> Iterator[tuple[str, tuple[int, int]]]:
        return ((self.key(index), (self._sizes[index], self._stamps[index])) for index in range(len(self)))


def unreadable(name: str, error: OSError) -> UsageError:
    """Return the error for a file or folder that cannot be read."""
    return UsageError(
        f"Cannot read '{name}': {error.strerror}.",
        hint="Check that it still exists, and its permissions.",
        file=name,
    )
