"""Names the pieces of a run's logs, and the files that join them for people."""

from __future__ import annotations

import re
from collections.abc import Iterable

Parts = tuple[str, ...]
"""A path below the folder."""
CHUNK = re.compile(r"attempts/([1-9][0-9]{0,8})/workers/([0-9]{1,6})/log/([0-9]{6,12})\.log")
ORDERED_CHUNK = re.compile(r"attempts/([1-9][0-9]{0,8})/log/[0-9]{8}T[0-9]{6}-([0-9]{4})-([0-9]{6})\.log")
"""A piece of a worker's log: attempt, worker, number."""


def joined_logs(paths: Iterable[Parts]) -> dict[Parts, list[Parts]]:
    """Return `logs/attempt-K-worker-I.log` of each worker, with the paths of its pieces in order."""
    logs: dict[Parts, list[tuple[int, Parts]]] = {}
    for parts in paths:
        if chunk := _chunk(parts):
            attempt, worker, number = chunk
            log = ("logs", f"attempt-{attempt}-worker-{worker}.log")
            logs.setdefault(log, []).append((int(number), parts))
    return {log: [parts for _, parts in sorted(chunks)] for log, chunks in logs.items()}


def _chunk(parts: Parts) -> tuple[str, ...] | None:
    """Return attempt, worker and number of a log chunk, or None for any other path."""
    path = "/".join(parts)
    match = CHUNK.fullmatch(path)
    if match:
        return match.groups()
    ordered = ORDERED_CHUNK.fullmatch(path)
    return (ordered[1], str(int(ordered[2])), ordered[3]) if ordered else None
