"""Reads one attempt of a run from the bucket: its record once, what its workers write on every access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tpuctl import clock, runs
from tpuctl.bucket_layout import LOG_CHUNK, chunk_number
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.evidence.decision import WorkerWord
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, sign_of
from tpuctl.host.worker.records import (
    ORDERED_LOG,
    PIECES,
    UNKNOWN,
    WorkerStatus,
    read_pieces,
    read_status_type,
)
from tpuctl.object_content import METADATA, Content
from tpuctl.parallel import fanout, values
from tpuctl.runs import ORDERED_LOGS, Attempt, decode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.flows.runs.stored_run import StoredRun

Record = TypeVar("Record")


class LogChunk(NamedTuple):
    """A piece of one worker's log."""

    item: Object
    """As it was written: `StoredAttempt.read_log` finds it where it is by now."""
    worker: int
    number: int
    holder: Object | None = None
    """The object that it was joined into with others."""
    start: int = 0
    """Where it begins in that one."""


class Look(NamedTuple):
    """What one listing tells of an attempt."""

    statuses: dict[int, Object]
    """By worker."""
    chunks: list[LogChunk]


class StoredAttempt:
    """One attempt of a run: its record, and what its workers write."""

    def __init__(self, run: StoredRun, number: int) -> None:
        self.run = run
        self.number = number
        self._read: dict[int, tuple[Object | None, WorkerStatus | None]] = {}
        """Worker -> the object of its newest status, and the status."""
        self._made: Object | None = None
        """The object of the record, once `words` has listed it."""
        self._finding = Lock()
        self._found = dict[tuple[str, int], LogChunk]()
        """Name and generation of a piece that was joined with others -> where it is by now."""

    @cached_property
    def record(self) -> Attempt:
        """attempt.json; raises NotFoundError when there is none, BadObjectError when it is no record.

        RecordMissingError for one that works, though its record is gone.
        """
        name = self.run.paths.attempt(self.number)
        try:
            data = self.run.bucket.read(name, runs.LARGEST[Attempt])
        except NotFoundError as error:
            sign = sign_of(self.run.bucket, self.run.name)
            raise (RecordMissingError(sign) if sign else error) from error
        return decode(data, Attempt, name, self._check)

    @property
    def is_read(self) -> bool:
        """Whether the record was read."""
        return "record" in vars(self)

    def _check(self, record: Attempt) -> None:
        if record.attempt != self.number:
            raise ValueError(f"it is of attempt {record.attempt}")

    def statuses(self) -> list[WorkerStatus | None]:
        """Return each worker's status, in the order of the record; None for a worker without one yet.

        One that cannot be read is UNKNOWN. One that has not changed since it was read is not read again.
        """
        return [word.status for word in self.words()]

    def words(self) -> list[WorkerWord]:
        """Return each worker's status with its age by the bucket's clock, by one listing."""
        folder = self.run.paths.attempt_folder(self.number)
        glob = f"{folder}{{attempt.json,workers/*/status.json}}"
        listed = self.run.bucket.objects(folder, glob=glob)
        name = self.run.paths.attempt(self.number)
        self._made = next((item for item in listed if item.name == name), self._made)
        return self.words_of(self._statuses(listed))

    def last_words(self) -> list[WorkerWord]:
        """Return the statuses that were read last, with their age by now; asks nobody."""
        return self.words_of(
            {worker: item for worker, (item, status) in self._read.items() if item and status}
        )

    @property
    def started(self) -> str:
        """When the record was written, by the bucket's clock; empty before `words` has listed it."""
        return self._made.updated if self._made else ""

    def status_objects(self) -> dict[int, Object]:
        """Return the objects of the workers' statuses, which are not read, by one listing."""
        folder = self.run.paths.attempt_folder(self.number)
        return self._statuses(self.run.bucket.objects(folder, glob=f"{folder}workers/*/status.json"))

    def look(self, after: str = "") -> Look:
        """Return the objects of the workers' statuses and the pieces of all logs from a time on.

        By one listing; what the statuses say is in `words_of`.
        """
        folder, logs = self.run.paths.attempt_folder(self.number), self.run.paths.ordered_logs(self.number)
        glob = f"{folder}{{log/*,workers/*/status.json}}"
        listed = self.run.bucket.objects(folder, start=f"{logs}{after}", glob=glob, more=METADATA)
        chunks = [item for item in listed if item.name.startswith(logs)]
        return Look(self._statuses(listed), self._chunks(chunks))

    def _statuses(self, objects: Iterable[Object]) -> dict[int, Object]:
        listed, paths = {item.name: item for item in objects}, self.run.paths
        names = {worker: paths.status(self.number, worker) for worker in self.record.workers}
        return {worker: listed[name] for worker, name in names.items() if name in listed}

    def words_of(self, statuses: Mapping[int, Object]) -> list[WorkerWord]:
        """Return what statuses say that were listed; reads those that say something else than before.

        The age of a worker that has not written yet is 0 before the first `words`.
        """
        workers, now = self.record.workers, self.run.bucket.now()
        items = {worker: statuses.get(worker) for worker in workers}
        unread = [worker for worker, item in items.items() if item and self._is_unread(worker, item)]
        for worker, status in zip(unread, values(fanout(self._status, unread)), strict=True):
            self._read[worker] = items[worker], status
        said = {worker: self._read[worker][1] if items[worker] else None for worker in workers}
        return [
            WorkerWord(worker, said[worker], age_of(items[worker] if said[worker] else self._made, now))
            for worker in workers
        ]

    def _is_unread(self, worker: int, item: Object) -> bool:
        """Return whether a status has to be read: its listing tells of one that only says that it goes on."""
        before, status = self._read.get(worker, (None, None))
        if before is None or status is None:
            return True
        if before.generation == item.generation:
            return False
        label, former = read_status_type(item.content_type), read_status_type(before.content_type)
        if label is None or former is None or label[0] != former[0]:
            return True
        quiet = status.quiet
        if quiet is not None:
            has_printed = label[1] != former[1]
            quiet = 0 if has_printed else quiet + round(age_of(before, clock.parse(item.updated)))
        self._read[worker] = item, replace(status, heartbeat=item.updated, log_chunks=label[1], quiet=quiet)
        return False

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

    def ordered_chunks(self, after: str = "") -> list[LogChunk]:
        """Return the chunks of all workers' logs from a time on, in order of time, by one listing."""
        folder = self.run.paths.ordered_logs(self.number)
        return self._chunks(self.run.bucket.objects(folder, start=f"{folder}{after}", more=METADATA))

    def chunks_of(self, workers: Iterable[int]) -> list[LogChunk]:
        """Return all chunks of some workers' logs in the older layout, a listing each."""
        listed = values(fanout(lambda worker: (worker, self.log_chunks(worker)), workers))
        return [LogChunk(item, worker, chunk_number(item.name)) for worker, items in listed for item in items]

    def _chunks(self, objects: Iterable[Object]) -> list[LogChunk]:
        folder, chunks, listed = self.run.paths.ordered_logs(self.number), list[LogChunk](), list(objects)
        joined = joined_pieces(listed)
        left = left_behind(listed, joined)
        for item in listed:
            match = ORDERED_LOG.fullmatch(item.name.removeprefix(folder))
            if match and item.name not in left:
                parts = joined.get(item.name, [item])
                worker, number = int(match[1]), int(match[2])
                starts = accumulate((part.size for part in parts), initial=0)
                chunks += (
                    LogChunk(part, worker, number + place, item if len(parts) > 1 else None, start)
                    for place, (part, start) in enumerate(zip(parts, starts, strict=False))
                )
            elif not match:
                self.run.warn(BadObjectError(item.name, "is no chunk of a log").message)
        return chunks

    def read_log(self, chunk: LogChunk, start: int, end: int) -> bytes:
        """Return bytes of a piece of a log, also of one that was joined with others since it was listed.

        Raises NotFoundError for one that was deleted or replaced.
        """
        try:
            return self._range(chunk, start, end)
        except NotFoundError:
            if chunk.holder or self.record.log_layout < ORDERED_LOGS:
                raise
            key = chunk.item.name, chunk.item.generation
            with self._finding:
                if key not in self._found:
                    joined = [later for later in self.ordered_chunks() if later.holder]
                    self._found = {(later.item.name, later.item.generation): later for later in joined}
            if key not in self._found:
                raise
            return self._range(self._found[key], start, end)

    def _range(self, chunk: LogChunk, start: int, end: int) -> bytes:
        holder = chunk.holder or chunk.item
        return self.run.bucket.read_range(holder, chunk.start + start, chunk.start + end)

    def _status(self, worker: int) -> WorkerStatus | None:
        """Return what a worker wrote last; None where that is of another run of the same name."""
        name = self.run.paths.status(self.number, worker)
        try:
            status = find_record(self.run.bucket, name, WorkerStatus, self._check_status(worker))
        except BadObjectError as error:
            self.run.warn(error.message)
            return WorkerStatus(worker, self.number, "", UNKNOWN, "")
        is_other = status and status.token and status.token != self.record.token
        return None if is_other else status

    def _check_status(self, worker: int) -> Callable[[WorkerStatus], None]:
        return lambda status: runs.check_status(status, self.number, worker)


def joined_pieces(objects: Collection[Object]) -> dict[str, list[Object]]:
    """Return the pieces of logs that listed objects were joined from, as they were written, by their names.

    Who may create objects alone can hide no piece of a log: one that says to have such pieces is one piece
    where another begins with the same, or has the first of them.
    """
    numbers = Counter(map(_number, objects))
    said = [item for item in objects if item.metadata and numbers[_number(item)] == 1]
    joined: dict[str, list[Object]] = {}
    ends: dict[str, int] = {}
    for item in sorted(said, key=_number):
        pieces, (log, _, number) = _pieces(item), _number(item).rpartition("-")
        if len(pieces) > 1 and int(number) > ends.get(log, 0):
            joined[item.name] = pieces
            ends[log] = int(number) + len(pieces) - 1
    return joined


def left_behind(objects: Iterable[Object], joined: Mapping[str, Sequence[Object]]) -> set[str]:
    """Return the names of listed objects that were joined into others, and were to be deleted."""
    held = {(piece.name, piece.generation) for pieces in joined.values() for piece in pieces[1:]}
    return {item.name for item in objects if (item.name, item.generation) in held}


def _number(item: Object) -> str:
    """Return which piece of which log an object begins with: folder, worker and number of its name."""
    folder, _, file = item.name.rpartition("/")
    match = ORDERED_LOG.fullmatch(file)
    return f"{folder}/{match[1]}-{match[2]}" if match else item.name


def _pieces(item: Object) -> list[Object]:
    folder, slash, file = item.name.rpartition("/")
    pieces = read_pieces(item.metadata.get(PIECES, ""), file, item.size)
    try:
        times = [clock.iso(clock.parse(piece.updated)) for piece in pieces]
    except ValueError:  # none that a clock shows
        return []
    return [
        replace(
            item,
            name=f"{folder}{slash}{piece.file}",
            content=Content(piece.size, ""),
            updated=time,
            generation=piece.generation,
            metadata={},
        )
        for piece, time in zip(pieces, times, strict=True)
    ]


def find_record(
    bucket: Bucket, name: str, kind: type[Record], check: Callable[[Record], None] | None = None
) -> Record | None:
    """Return the record in an object, None without the object; raises BadObjectError."""
    data = bucket.find(name, runs.LARGEST[kind])
    return None if data is None else decode(data, kind, name, check)


def age_of(item: Object | None, now: datetime) -> float:
    """Return the seconds since an object was written, by the bucket's own clock; 0 without it."""
    return max(0.0, (now - clock.parse(item.updated)).total_seconds()) if item else 0.0
