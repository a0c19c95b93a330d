"""Writes the numbers of workers as `--worker` reads them: ranges, since there may be hundreds."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(workers: Iterable[int]) -> str:
    """Return numbers as ascending ranges: `0-3, 7`."""
    spans: list[list[int]] = []
    for worker in sorted(workers):
        if spans and worker == spans[-1][1] + 1:
            spans[-1][1] = worker
        else:
            spans.append([worker, worker])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)


def named(workers: Iterable[int]) -> str:
    """Return workers with their noun: `worker 3`, `workers 0-3, 7`."""
    listed = list(workers)
    return f"worker{'s' * (len(listed) > 1)} {ranges(listed)}"
