"""A picture that a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture as PNG."""

    png: bytes
    text: str
    """What it shows."""
    problems: Sequence[str] = ()
    """Why something is missing in it."""

    def save(self, path: str | Path) -> None:
        """Write it into a file."""
        Path(path).write_bytes(self.png)

    def __repr__(self) -> str:
        """Say what it shows."""
        missing = f", {len(self.problems)} not drawn" if self.problems else ""
        return f"<{self.text}{missing}: .save('FILE.png')>"

    def _repr_png_(self) -> bytes:
        return self.png
