"""Counts the bytes that arrive in all threads, and ends the downloads when the command ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Takes the bytes that are here, and all bytes."""


class EndedError(Exception):
    """The command ends: downloads in other threads end, too."""


class ByteCount:
    """Counts bytes in all threads, and ends them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._ended = False
        self._here = self._all = 0

    def expect(self, size: int) -> None:
        """Note how many bytes there are to come, at least."""
        with self._lock:
            self._all = max(self._all, size)

    def add(self, size: int) -> None:
        """Note bytes that have arrived; raises EndedError once the command ends."""
        with self._lock:
            if self._ended:
                raise EndedError
            self._here += size
            self._all = max(self._all, self._here)
            self._progress(self._here, self._all)

    def end(self) -> None:
        """Let every later `add` raise."""
        with self._lock:
            self._ended = True
