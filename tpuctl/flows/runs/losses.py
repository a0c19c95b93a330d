"""Says how many steps an attempt has lost that the next does again, by their logs and the checkpoint.

A log tells steps as `step 120`, `Step: 120/1000` or `global_step=120`; a checkpoint's name ends in its step.
"""

from __future__ import annotations

import re
from itertools import pairwise

from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.stored_attempt import LogChunk, StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import Verdict

STEP = re.compile(rb"(?<![a-z])step\b\W{0,3}(\d{1,15})", re.IGNORECASE)
NUMBER = re.compile(r"\d{1,15}\Z")
MOST_PIECES = 3
"""Pieces of a log at its begin or end in which steps are looked for."""
MOST_BYTES = 64 << 10
"""Bytes of each that are read."""


def steps_lost(run: StoredRun, verdict: Verdict) -> int | None:
    """Return how many steps the attempt of a verdict has lost to the next; None where that is not known.

    It is known where both tell their steps, and the next goes on right behind the checkpoint's number: that
    of a script which counts its saves is no step.
    """
    try:
        before = _steps(run.attempt(verdict.attempt), is_end=True)
        after = _steps(run.attempt(verdict.attempt + 1), is_end=False)
    except TpuctlError:
        return None
    if not before or not after:
        return None
    last, first = max(before), after[0]
    return _lost(last, first, _resumed_at(verdict.checkpoint), _interval(before, after))


def total_lost(run: StoredRun, before: int) -> int | None:
    """Return the steps that all attempts before the `before`-th have lost; None where one is not known."""
    try:
        lost = [steps_lost(run, verdict) for verdict in run.earlier_verdicts(before)]
    except TpuctlError:  # a verdict that cannot be read
        return None
    known = [steps for steps in lost if steps is not None]
    return sum(known) if lost and len(known) == len(lost) else None


def first_step(run: StoredRun, number: int) -> str:
    """Return when the log of an attempt told its first step, by the bucket's clock; empty before that."""
    attempt = run.attempt(number)
    worker = attempt.record.workers[0]
    for chunk in [chunk for chunk in attempt.ordered_chunks() if chunk.worker == worker][:MOST_PIECES]:
        if STEP.search(_read(attempt, chunk, is_end=False)):
            return chunk.item.updated
    return ""


def _lost(last: int, first: int, resumed: int | None, interval: int) -> int | None:
    if resumed is None or not resumed <= first <= resumed + interval:
        return None
    return max(0, last - resumed)


def _resumed_at(checkpoint: str) -> int | None:
    """Return the step of a checkpoint's name; 0 for an attempt that begins anew."""
    match = NUMBER.search(checkpoint)
    if match:
        return int(match[0])
    return None if checkpoint else 0


def _interval(before: list[int], after: list[int]) -> int:
    """Return the longest distance between two steps that a log tells in a row; 1 where it is not known."""
    distances = [second - first for steps in (before, after) for first, second in pairwise(steps)]
    return max((distance for distance in distances if distance > 0), default=1)


def _steps(attempt: StoredAttempt, *, is_end: bool) -> list[int]:
    """Return the steps that the first worker tells at the begin or the end of its log, in order."""
    worker = attempt.record.workers[0]
    chunks = [chunk for chunk in attempt.ordered_chunks() if chunk.worker == worker]
    chosen = chunks[-MOST_PIECES:] if is_end else chunks[:MOST_PIECES]
    text = b"".join(_read(attempt, chunk, is_end=is_end) for chunk in chosen)
    return [int(step) for step in STEP.findall(text)]


def _read(attempt: StoredAttempt, chunk: LogChunk, *, is_end: bool) -> bytes:
    size = chunk.item.size
    start = max(0, size - MOST_BYTES) if is_end else 0
    return attempt.read_log(chunk, start, min(size, start + MOST_BYTES))
