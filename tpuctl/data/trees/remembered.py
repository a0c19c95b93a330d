"""Remembers small files that were fetched whole when only their heads were asked for."""

from __future__ import annotations

from threading import Lock

from tpuctl.data.trees.tree import ListedFile

LARGEST_REMEMBERED = 1 << 20
"""Bytes of the largest file that is worth fetching whole for its head."""
MOST_REMEMBERED = 256 << 20
"""Bytes of all that are held in memory."""


class RememberedFiles:
    """Contents of files until they are read, each once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contents: dict[tuple[str, int], bytes] = {}
        self._size = 0

    def has_space(self, file: ListedFile) -> bool:
        """Return whether a file is small enough to be added."""
        return file.size <= LARGEST_REMEMBERED and self._size + file.size <= MOST_REMEMBERED

    def add(self, file: ListedFile, data: bytes) -> None:
        """Remember a file."""
        with self._lock:
            if self.has_space(file) and (file.path, file.stamp) not in self._contents:
                self._contents[file.path, file.stamp] = data
                self._size += len(data)

    def take(self, file: ListedFile) -> bytes | None:
        """Return a file that is remembered, and forget it."""
        if not self._contents:
            return None
        with self._lock:
            data = self._contents.pop((file.path, file.stamp), None)
            self._size -= len(data or b"")
            return data
