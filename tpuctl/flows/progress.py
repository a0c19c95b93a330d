"""Defines how a flow reports its steps, and what keeps it from the next one for a while.

- Counts the bytes that arrive in all threads, and ends the downloads when the command ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tpuctl.errors import TpuctlError

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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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


Report = Callable[[str], None]
"""Takes one line for the user; the command line shows it."""


def silent(line: str) -> None:
    """Report to nobody."""


class Outage:
    """Reports what keeps a command from looking, once until it is over; the command looks again."""

    def __init__(self, report: Report, doing: str) -> None:
        """Take what the command still does meanwhile: "watching"."""
        self._report = report
        self._doing = doing
        self.message = ""
        """What keeps it; empty once it is over."""

    def note(self, error: TpuctlError) -> None:
        """Take the error of a look."""
        if error.message != self.message:
            self._report(f"{error.message} Still {self._doing}.")
        self.message = error.message

    def end(self) -> None:
        """Take a look that went well."""
        self.message = ""
