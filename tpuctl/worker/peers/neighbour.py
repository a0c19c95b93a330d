"""Watches the next worker of an attempt, in a ring: one that dies without a word is missed by somebody."""

from __future__ import annotations

import json
import time
from typing import List

from tpuctl.worker import gcs, timing
from tpuctl.worker.records import FINISHED, STATUS_FILE, Spec, attempt_folder

LARGEST_STATUS = 64 * 1024
"""Bytes of a status."""


class Neighbour:
    """The next worker that has not ended."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._folder = attempt_folder(spec.folder) + "workers/"
        ring = sorted(spec.participants)
        place = ring.index(spec.worker) + 1
        self._others: List[int] = ring[place:] + ring[: place - 1]
        self._generation = -1
        self._since = time.monotonic()
        self._next = 0.0

    @property
    def worker(self) -> int:
        """Its number; -1 once all others have ended."""
        return self._others[0] if self._others else -1

    @property
    def has_written(self) -> bool:
        """Whether it has ever written, as of the last look: one that has not was never started."""
        return self._generation != 0

    def due(self) -> bool:
        """Return whether it is time to look again."""
        return bool(self._others) and time.monotonic() >= self._next

    def silence(self) -> float:
        """Return the seconds for which it was seen to write nothing, after a look; 0 for one that has ended.

        Raises gcs.GcsError; then call `forget`.
        """
        now = time.monotonic()
        self._next = now + timing.NEIGHBOUR_INTERVAL
        name = "%s%d/%s" % (self._folder, self.worker, STATUS_FILE)
        generation = self._bucket.stat(name)[0]
        is_late = generation == self._generation and now - self._since > timing.NEIGHBOUR_SILENCE
        has_ended = is_late and self._has_ended(name)
        if has_ended:
            self._others.pop(0)
        if generation != self._generation or has_ended:
            self._generation, self._since = generation, now
        return now - self._since

    def forget(self) -> None:
        """Begin to count anew: a look that failed says nothing about the other."""
        self._generation = -1

    def _has_ended(self, name: str) -> bool:
        try:
            return bool(json.loads(self._bucket.read(name, LARGEST_STATUS)[1])["state"] == FINISHED)
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
