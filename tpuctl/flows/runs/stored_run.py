"""Reads a run from the bucket: immutable records once, the others on every access."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tpuctl import runs
from tpuctl.bucket_layout import ATTEMPT_FOLDER, LOG_CHUNK, NodePaths, RunPaths
from tpuctl.bucket_objects.bad_object import BadObjectError, too_large
from tpuctl.errors import ConflictError, NotFoundError, UsageError
from tpuctl.flows.progress import Report, silent
from tpuctl.parallel import fanout, values
from tpuctl.runs import Attempt, Run, Verdict, decode, encode
from tpuctl.worker.records import MOST_CHARACTERS, UNKNOWN, WorkerStatus

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

Record = TypeVar("Record")


MOST_UNREADABLE = 5
"""Attempts, from the newest, of which one has to be readable."""
FEW_WORKERS = 8
"""Workers whose statuses are read without a look at which there are."""


class StoredRun:
    """One run in one bucket; reads only when a method is called."""

    def __init__(self, bucket: Bucket, name: str, warn: Report = silent) -> None:
        """Take `warn`, which gets a line about each object that is no record of tpuctl and is left out."""
        self.bucket = bucket
        self.name = name
        self.warn = warn
        self.paths = RunPaths(name)
        self._attempts: dict[int, StoredAttempt] = {}
        self._verdict: Verdict | None = None

    @cached_property
    def record(self) -> Run:
        """run.json; raises NotFoundError when there is no such run, BadObjectError when it is no record."""
        record = _find(self.bucket, self.paths.record, Run, self._check)
        if record is None:
            raise self.not_found()
        return record

    def verdict(self) -> Verdict | None:
        """Return verdict.json, or None before it is written; raises BadObjectError when it is no verdict."""
        if self._verdict is None:
            self._verdict = _find(self.bucket, self.paths.verdict, Verdict, self._check)
        return self._verdict

    def _check(self, record: Run | Verdict) -> None:
        if record.run != self.name:
            raise ValueError(f"it is of run {record.run!r}")

    def attempt_numbers(self) -> list[int]:
        """Return the numbers of all attempts that have a record, in order; none when there is no such run."""
        records = self.bucket.objects(self.paths.attempts, glob=f"{self.paths.attempts}*/attempt.json")
        folders = [listed.name.split("/")[-2] for listed in records]
        for folder in folders:
            if not ATTEMPT_FOLDER.fullmatch(folder):
                name = f"{self.paths.attempts}{folder}/"
                self.warn(BadObjectError(name, "does not have the number of an attempt").message)
        return sorted(int(folder) for folder in folders if ATTEMPT_FOLDER.fullmatch(folder))

    def attempt(self, number: int) -> StoredAttempt:
        """Return one attempt, whether or not the bucket has it; the same object each time."""
        return self._attempts.setdefault(number, StoredAttempt(self, number))

    def last_attempt(self) -> StoredAttempt:
        """Return the newest attempt; raises NotFoundError without any."""
        numbers = self.attempt_numbers()
        if not numbers:
            raise self.not_found()
        return self.attempt(numbers[-1])

    def last_readable_attempt(self) -> StoredAttempt:
        """Return the newest attempt whose record can be read; raises as `last_attempt`, or BadObjectError."""
        numbers = self.attempt_numbers()
        if not numbers:
            raise self.not_found()
        refused = []
        for number in numbers[: -MOST_UNREADABLE - 1 : -1]:
            try:
                self.attempt(number).record  # noqa: B018  read for its error
            except BadObjectError as error:
                refused.append(error)
                self.warn(error.message)
            else:
                return self.attempt(number)
        raise refused[0]

    def create(self, record: Run) -> None:
        """Write run.json; raises ConflictError when the name is taken, UsageError if none could read it."""
        try:
            self.bucket.create(self.paths.record, self._encoded(record))
        except ConflictError as error:
            raise ConflictError(
                f"There is a run '{self.name}' already: its record exists.", hint="Choose another --name."
            ) from error

    def _encoded(self, record: Run) -> bytes:
        data = encode(record)
        try:
            if len(data) > runs.LARGEST[Run]:
                raise too_large(self.paths.record, runs.LARGEST[Run])
            decode(data, Run, self.paths.record, self._check)
        except BadObjectError as error:
            hint = "Pass fewer or shorter arguments and variables; large values belong into a file."
            raise UsageError(f"This run cannot be recorded: {error.message}", hint=hint) from error
        return data

    def create_attempt(self, record: Attempt) -> StoredAttempt:
        """Write an attempt.json; raises ConflictError when another machine has made this attempt.

        What says in the node's folder that it works there comes first: readers follow it to the attempt.
        """
        note = NodePaths.of(record.tpu.id).run(self.name, record.attempt)
        try:
            self.bucket.create(note, encode({"run": self.name, "attempt": record.attempt}))
        except ConflictError:
            pass  # the attempt itself decides who is first
        self.bucket.create(self.paths.attempt(record.attempt), encode(record))
        return self.attempt(record.attempt)

    def end(self, verdict: Verdict) -> Verdict:
        """Write a verdict unless the run has one; return the one that the bucket holds then."""
        verdict = msgspec.structs.replace(verdict, evidence=verdict.evidence[:MOST_CHARACTERS])
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
        """attempt.json; raises NotFoundError when there is none, BadObjectError when it is no record."""
        name = self.run.paths.attempt(self.number)
        return decode(self.run.bucket.read(name, runs.LARGEST[Attempt]), Attempt, name, self._check)

    def _check(self, record: Attempt) -> None:
        if record.attempt != self.number:
            raise ValueError(f"it is of attempt {record.attempt}")

    def statuses(self) -> list[WorkerStatus | None]:
        """Return each worker's status, in the order of the record; None for a worker without one yet.

        One that cannot be read is UNKNOWN. All are read at once, and those of many workers only where the
        bucket lists one; a status that says finished is the worker's last, so it is read once.
        """
        workers = self.record.workers
        listed = self._listed_statuses() if len(workers) > FEW_WORKERS else None
        names = {worker: self.run.paths.status(self.number, worker) for worker in workers}
        present = [worker for worker in workers if listed is None or names[worker] in listed]
        statuses = dict(zip(present, values(fanout(self._status, present)), strict=True))
        return [statuses.get(worker) for worker in workers]

    def _listed_statuses(self) -> set[str]:
        folder = self.run.paths.worker(self.number, 0).removesuffix("0/")
        return {item.name for item in self.run.bucket.objects(folder, glob=f"{folder}*/status.json")}

    def log_chunks(self, worker: int, after: int = 0) -> list[Object]:
        """Return the chunks of a worker's log that come after the given number, in order."""
        paths = self.run.paths
        folder, first = paths.logs(self.number, worker), paths.log(self.number, worker, after + 1)
        listed = self.run.bucket.objects(folder, start=first)
        chunks = {item: LOG_CHUNK.fullmatch(item.name.removeprefix(folder)) for item in listed}
        for item, matches in chunks.items():
            if not matches:
                self.run.warn(BadObjectError(item.name, "is no chunk of a log").message)
        return [item for item, matches in chunks.items() if matches]

    def _status(self, worker: int) -> WorkerStatus | None:
        if worker in self._finished:
            return self._finished[worker]
        name = self.run.paths.status(self.number, worker)
        try:
            status = _find(self.run.bucket, name, WorkerStatus, self._check_status(worker))
        except BadObjectError as error:
            self.run.warn(error.message)
            return WorkerStatus(worker, self.number, "", UNKNOWN, "")
        if status and status.is_finished:
            self._finished[worker] = status
        return status

    def _check_status(self, worker: int) -> Callable[[WorkerStatus], None]:
        return lambda status: runs.check_status(status, self.number, worker)


def _find(
    bucket: Bucket, name: str, kind: type[Record], check: Callable[[Record], None] | None = None
) -> Record | None:
    data = bucket.find(name, runs.LARGEST[kind])
    return None if data is None else decode(data, kind, name, check)
