"""The metrics that a job prints."""

from __future__ import annotations

import re


def of(printed: str) -> dict[str, list[float]]:
    """Return the metrics of the epoch lines by name, one value per epoch."""
    metrics: dict[str, list[float]] = {}
    for line in re.findall(r"^epoch +\d+  .*$", printed, re.MULTILINE):
        for name, value in re.findall(r"([a-z_0-9]+) (-?\d+\.\d+)(?=  |$)", line):
            metrics.setdefault(name, []).append(float(value))
    return metrics
