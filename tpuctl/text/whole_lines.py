"""Cuts a stream of bytes into whole lines, with memory for one line of a bounded length."""

from __future__ import annotations

LONGEST = 1 << 16
"""Bytes of a line that are shown in one piece."""


class WholeLines:
    """Collects a stream; a line that is too long is cut, and of a progress bar the last state is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete, each with its line end."""
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            complete, self._rest = self._rest + head + newline, tail
            return complete
        self._rest += tail
        if len(self._rest) <= LONGEST:
            return b""
        overwritten = self._rest.rstrip(b"\r").rfind(b"\r")
        if overwritten >= 0:
            self._rest = self._rest[overwritten + 1 :]
            return b""
        return self.end()

    def end(self) -> bytes:
        """Return what is left, as a line, or nothing."""
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""
