"""Defines a checkpoint as a reader finds it in a listing, and its step."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

_NAMED_STEP = re.compile(r"step[^0-9a-z]?(\d{1,15})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?:\A|[^0-9.])(\d{1,15})\Z")
"""At the end of a name without its suffix; that of `loss-0.31` is none."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in the bucket."""

    name: str
    """Name of its folder or file in the bucket, or the beginning that its files share."""
    format: str
    """The library that writes it, for people."""
    step: int | None
    """The number that its name has, which libraries make of the step; None without one."""
    files: tuple[str, ...]
    """Names of its objects, `marks` excepted where it shares them."""
    marks: tuple[str, ...] = ()
    """Objects that say that it is complete; a copy of it gets them last."""
    reason: str = ""
    """Why it is not complete, as the library that reads it decides; empty for a committed one."""

    @property
    def label(self) -> str:
        """Its name without the folders above."""
        return self.name.rpartition("/")[2]


def step_of(name: str, suffix: str = "") -> int | None:
    """Return the number in the name of a checkpoint, or in that of the nearest folder that has one."""
    _, _, below = name.removesuffix(suffix).rpartition("/checkpoints/")
    for part in reversed(below.split("/")):
        match = _NAMED_STEP.search(part) or _LAST_NUMBER.search(part)
        if match:
            return int(match[1])
    return None


def below(names: Sequence[str], folder: str) -> Sequence[str]:
    """Return the names in a folder, which ends in a slash; `names` are in order.

    Readers call it for each of the folders, of which whoever writes to the bucket may make very many.
    """
    behind = f"{folder[:-1]}{chr(ord('/') + 1)}"
    return names[bisect_left(names, folder) : bisect_left(names, behind)]
