"""The numbers that a job prints."""

from __future__ import annotations

import re


def of(printed: str) -> dict[str, list[float]]:
    """Return the numbers that the lines of epochs name, in the order of the epochs."""
    found: dict[str, list[float]] = {}
    for line in re.findall(r"^epoch +\d+  .*$", printed, re.MULTILINE):
        for name, value in re.findall(r"([a-z_0-9]+) (-?\d+\.\d+)(?=  |$)", line):
            found.setdefault(name, []).append(float(value))
    return found
