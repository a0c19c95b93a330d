"""Counts the bytes that arrive in all threads, and ends the downloads when the command ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

Progress = Callable[[int, int], None]
"""Takes the bytes that are here, and all bytes."""


class EndedError(Exception):
    """The command ends: downloads in other threads end, too."""


class ByteCount:
    """Counts bytes in all threads; an error in its block ends the downloads that go on in others."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._ended = False
        self._here = self._all = 0

    def __enter__(self) -> ByteCount:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = kind is not None

    def expect(self, size: int) -> None:
        """Note how many bytes there are to come, at least."""
        with self._lock:
            self._all = max(self._all, size)

    def add(self, size: int) -> None:
        """Note bytes that have arrived; raises EndedError once an error has ended the block."""
        with self._lock:
            if self._ended:
                raise EndedError
            self._here += size
            self._all = max(self._all, self._here)
            self._progress(self._here, self._all)
