"""Logs of a run in a bucket in memory, written as its workers do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import cast

import msgspec

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, STATUS
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import encode, ordered_log_file, status_type
from tpuctl.runs import ORDERED_LOGS


class MemoryLogs:
    """The logs of one attempt; counts what reading them costs."""

    def __init__(self, workers: Iterable[int] = (0, 1, 2), layout: int = ORDERED_LOGS) -> None:
        self.bucket = MemoryBucket()
        self.requests = 0
        self.bucket.meanwhile = self._count
        self._layout = layout
        self._chunks = dict.fromkeys(workers, 0)
        self.run = StoredRun(cast(Bucket, self.bucket), "r1")
        record = msgspec.structs.replace(ATTEMPT, workers=tuple(self._chunks), log_layout=layout)
        self.run.create_attempt(record)

    def _count(self) -> None:
        self.requests += 1

    @property
    def attempt(self) -> StoredAttempt:
        """The attempt as another machine reads it."""
        return StoredRun(self.run.bucket, "r1").attempt(1)

    def print(self, worker: int, data: bytes, late: float = 0) -> None:
        """Ship a piece, under the name of so many seconds ago; the worker tells of it."""
        self._chunks[worker] += 1
        chunk = self._chunks[worker]
        moment = (self.bucket.now() - timedelta(seconds=late)).strftime("%Y%m%dT%H%M%S")
        name = self.run.paths.attempt_folder(1) + ordered_log_file(moment, worker, chunk)
        self.bucket.put(name if self._layout == ORDERED_LOGS else self.run.paths.log(1, worker, chunk), data)
        self.tell(worker)

    def tell(self, worker: int) -> None:
        """Write a worker's status."""
        status = replace(STATUS, worker=worker, log_chunks=self._chunks[worker])
        self.bucket.put(self.run.paths.status(1, worker), encode(status), status_type(status))
