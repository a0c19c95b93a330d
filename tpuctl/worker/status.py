"""Writes this worker's status and heartbeat into the bucket, under generation preconditions."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import List

from tpuctl.worker import gcs, timing
from tpuctl.worker.records import PREPARING, STATUS_FILE, Spec, WorkerStatus, encode


class StatusWriter:
    """Owns one status object: only the process that created it ever replaces it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._name = spec.folder + STATUS_FILE
        self._generation = 0
        self._unconfirmed: List[bytes] = []
        self._written = 0.0
        self.last = WorkerStatus(spec.worker, spec.attempt, spec.tpu_uid, PREPARING, heartbeat="")
        """The newest status, also when its write failed: the next write carries it on."""

    def due(self) -> bool:
        """Return whether the next heartbeat is due."""
        return time.monotonic() >= self._written + timing.HEARTBEAT

    def write(self, status: WorkerStatus) -> None:
        """Write a status with the current time; raises gcs.PreconditionError if another process wrote it."""
        self.last = replace(status, heartbeat=now())
        data = encode(self.last)
        self._unconfirmed.append(data)
        try:
            self._generation = self._bucket.put(self._name, data, if_generation=self._generation)
        except gcs.PreconditionError:
            self._generation = self._after_own_write(data)
        self._unconfirmed.clear()
        self._written = time.monotonic()

    def _after_own_write(self, data: bytes) -> int:
        """Return the generation to continue from, if the object holds one of our own unconfirmed writes."""
        generation = self._bucket.generation(self._name)
        stored = self._bucket.get(self._name) if generation else b""
        if stored not in self._unconfirmed:
            raise gcs.PreconditionError(self._name)
        return generation if stored == data else self._bucket.put(self._name, data, if_generation=generation)


def now() -> str:
    """Return the current time as ISO-8601, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
