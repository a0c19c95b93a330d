"""Remembers small files that were fetched whole when only their heads were asked for."""

from __future__ import annotations

import os
import tempfile
from threading import Lock

from tpuctl.data.trees.tree import ListedFile

LARGEST_REMEMBERED = 1 << 20
"""Bytes of the largest file that is worth fetching whole for its head."""
MOST_IN_MEMORY = 128 << 20
"""Bytes of all that are held in memory."""
MOST_ON_DISK = 8 << 30
"""Bytes of those beyond that are held in a temporary file, if half of the disk's free space suffices."""

_Key = tuple[str, int]


class RememberedFiles:
    """Contents of files until they are read, each once; from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contents: dict[_Key, bytes] = {}
        self._size = 0
        self._on_disk: dict[_Key, tuple[int, int]] = {}
        self._descriptor = -1
        self._written = 0
        self._most_on_disk = MOST_ON_DISK

    def __del__(self) -> None:
        """Give the space of the temporary file back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def has_space(self, file: ListedFile) -> bool:
        """Return whether a file is small enough to be added."""
        is_small = file.size <= LARGEST_REMEMBERED
        return is_small and (self._fits_in_memory(file.size) or self._fits_on_disk(file.size))

    def add(self, file: ListedFile, data: bytes) -> None:
        """Remember a file, if there is space."""
        key = file.path, file.stamp
        with self._lock:
            if key in self._contents or key in self._on_disk:
                return
            if self._fits_in_memory(len(data)):
                self._contents[key] = data
                self._size += len(data)
            elif self._fits_on_disk(len(data)):
                self._write(key, data)

    def take(self, file: ListedFile) -> bytes | None:
        """Return a file that is remembered, and forget it."""
        if not self._contents and not self._on_disk:
            return None
        key = file.path, file.stamp
        with self._lock:
            data = self._contents.pop(key, None)
            self._size -= len(data or b"")
            place = self._on_disk.pop(key, None)
        if place:
            at, size = place
            data = os.pread(self._descriptor, size, at)
            return data if len(data) == size else None
        return data

    def _fits_in_memory(self, size: int) -> bool:
        return self._size + size <= MOST_IN_MEMORY

    def _fits_on_disk(self, size: int) -> bool:
        return self._written + size <= self._most_on_disk

    def _write(self, key: _Key, data: bytes) -> None:
        try:
            if self._descriptor < 0:
                self._open()
            if os.pwrite(self._descriptor, data, self._written) == len(data):
                self._on_disk[key] = (self._written, len(data))
            self._written += len(data)
        except OSError:
            self._most_on_disk = 0  # a full disk: what follows is fetched twice

    def _open(self) -> None:
        with tempfile.TemporaryFile(prefix="tpuctl-", buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
        status = os.fstatvfs(self._descriptor)
        self._most_on_disk = min(MOST_ON_DISK, status.f_bavail * status.f_frsize // 2)
