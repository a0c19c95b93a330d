"""Prints warnings on stderr, each once, and after the first few only their number."""

from __future__ import annotations

from threading import Lock

from tpuctl.cli import output

MOST = 20
"""Lines of one command."""


class WarningLines:
    """The warnings of one command; call it with a line, from any thread."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._lock = Lock()

    def __call__(self, line: str) -> None:
        """Print a line unless it was printed before, or there were too many."""
        with self._lock:
            if line not in self._lines:
                self._lines.add(line)
                if len(self._lines) <= MOST:
                    output.note(f"Warning: {line}")

    def close(self) -> None:
        """Print how many lines were left out."""
        if (more := len(self._lines) - MOST) > 0:
            output.note(f"Warning: {more} more like these.")
