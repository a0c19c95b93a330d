"""Reads a run from the bucket: immutable records once, the others on every access."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from tpuctl.bucket_layout import RUNS, RunPaths
from tpuctl.errors import ConflictError, NotFoundError
from tpuctl.parallel import fanout, values
from tpuctl.runs import Attempt, Run, Verdict, decode, encode
from tpuctl.worker.records import WorkerStatus

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

Record = TypeVar("Record")


class StoredRun:
    """One run in one bucket; reads only when a method is called."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self.bucket = bucket
        self.name = name
        self.paths = RunPaths(name)
        self._attempts: dict[int, StoredAttempt] = {}
        self._verdict: Verdict | None = None

    @cached_property
    def record(self) -> Run:
        """run.json; raises NotFoundError when there is no such run."""
        record = _find(self.bucket, self.paths.record, Run)
        if record is None:
            raise self.not_found()
        return record

    def verdict(self) -> Verdict | None:
        """Return verdict.json, or None before it is written."""
        if self._verdict is None:
            self._verdict = _find(self.bucket, self.paths.verdict, Verdict)
        return self._verdict

    def attempt_numbers(self) -> list[int]:
        """Return the numbers of all attempts, in order; empty when there are none, or no such run."""
        folders = self.bucket.folders(self.paths.attempts)
        return sorted(int(folder) for folder in folders if folder.isdigit())

    def attempt(self, number: int) -> StoredAttempt:
        """Return one attempt, whether or not the bucket has it; the same object each time."""
        return self._attempts.setdefault(number, StoredAttempt(self, number))

    def last_attempt(self) -> StoredAttempt:
        """Return the newest attempt; raises NotFoundError without any."""
        numbers = self.attempt_numbers()
        if not numbers:
            raise self.not_found()
        return self.attempt(numbers[-1])

    def create(self, record: Run) -> None:
        """Write run.json; raises ConflictError when the name is taken."""
        try:
            self.bucket.create(self.paths.record, encode(record))
        except ConflictError as error:
            raise ConflictError(
                f"There is a run '{self.name}' already: its record exists.", hint="Choose another --name."
            ) from error

    def create_attempt(self, record: Attempt) -> StoredAttempt:
        """Write an attempt.json; raises ConflictError when another machine has made this attempt."""
        self.bucket.create(self.paths.attempt(record.attempt), encode(record))
        return self.attempt(record.attempt)

    def end(self, verdict: Verdict) -> Verdict:
        """Write a verdict unless the run has one; return the one that the bucket holds then."""
        try:
            self.bucket.create(self.paths.verdict, encode(verdict))
        except ConflictError:
            return self.verdict() or verdict
        self._verdict = verdict
        return verdict

    def not_found(self) -> NotFoundError:
        """Return the error for a run that the bucket does not have."""
        return NotFoundError(
            f"There is no run '{self.name}'.", hint="'tpuctl runs' lists them.", run=self.name
        )


class StoredAttempt:
    """One attempt of a run: its record, and what its workers write."""

    def __init__(self, run: StoredRun, number: int) -> None:
        self.run = run
        self.number = number
        self._finished: dict[int, WorkerStatus] = {}

    @cached_property
    def record(self) -> Attempt:
        """attempt.json; raises NotFoundError when there is no such attempt."""
        name = self.run.paths.attempt(self.number)
        return decode(self.run.bucket.read(name), Attempt, name)

    def statuses(self) -> list[WorkerStatus | None]:
        """Return each worker's status, in the order of the record; None for a worker without one yet.

        All are read at once; a status that says finished is the worker's last, so it is read once.
        """
        return values(fanout(self._status, self.record.workers))

    def log_chunks(self, worker: int, after: int = 0) -> list[Object]:
        """Return the chunks of a worker's log that come after the given number, in order."""
        paths = self.run.paths
        first = paths.log(self.number, worker, after + 1)
        return self.run.bucket.objects(paths.logs(self.number, worker), start=first)

    def _status(self, worker: int) -> WorkerStatus | None:
        if worker in self._finished:
            return self._finished[worker]
        status = _find(self.run.bucket, self.run.paths.status(self.number, worker), WorkerStatus)
        if status and status.is_finished:
            self._finished[worker] = status
        return status


def stored_runs(bucket: Bucket) -> list[StoredRun]:
    """Return all runs of a bucket, oldest first."""
    records = bucket.objects(RUNS, glob=f"{RUNS}*/run.json")
    ordered = sorted(records, key=lambda record: record.generation)
    return [StoredRun(bucket, record.name.split("/")[1]) for record in ordered]


def find_run(bucket: Bucket, name: str | None) -> StoredRun:
    """Return the run of this name, not read yet; without a name, the run that was submitted last.

    Raises NotFoundError when the bucket has no run at all.
    """
    if name:
        return StoredRun(bucket, name)
    runs = stored_runs(bucket)
    if not runs:
        raise NotFoundError("There is no run yet.", hint="Submit one: tpuctl submit jobs/digits.py")
    return runs[-1]


def _find(bucket: Bucket, name: str, kind: type[Record]) -> Record | None:
    data = bucket.find(name)
    return decode(data, kind, name) if data else None
