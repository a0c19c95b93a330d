"""Finds where the last lines of a log begin: lists and reads no more than its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tpuctl import clock
from tpuctl.flows.runs.stored_attempt import LogChunk, StoredAttempt
from tpuctl.host.worker.records import read_status_type
from tpuctl.parallel import fanout, values
from tpuctl.runs import ORDERED_LOGS

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object

TIME_FORM = "%Y%m%dT%H%M%S"
OVERLAP = timedelta(seconds=60)
"""How much later than its name says a chunk may appear without being looked for."""
BLOCK = 64 << 10
"""Bytes that are read first, from the end; then twice as many each time."""
LARGEST_BLOCK = 4 << 20
LONGEST_LINE = 8 << 20
"""Bytes of a line after which it is shown, and what follows as the next."""
WINDOWS = (timedelta(minutes=10), timedelta(hours=3))
"""Before the last word of a worker: chunks of so long are listed, and all if these are too few."""


class Place(NamedTuple):
    """Where the reading of one worker's log begins."""

    chunks: int
    """Number of the chunk before."""
    partial: bytes = b""
    """The start of the line that is cut there."""
    reading: str = ""
    """The chunk in which it begins, if that is not at a chunk's start."""
    position: int = 0


@dataclass(frozen=True)
class Beginning:
    """Where reading begins."""

    after: str
    """The time in names from which chunks have to be listed."""
    generation: int
    """That of the first chunk that is read: earlier ones are not."""
    places: dict[int, Place]
    """By worker."""


@dataclass
class _End:
    """The chunks from which lines are shown, the newest first."""

    chunks: list[LogChunk] = field(default_factory=list)
    position: int = 0
    """Where the reading of the last of them begins."""
    is_enough: bool = False
    """Whether no older chunk can belong to it."""


def find_beginning(
    attempt: StoredAttempt,
    workers: Sequence[int],
    selects: Callable[[bytes], bool],
    tail: int | None,
    since: datetime | None,
) -> Beginning:
    """Return where the last `tail` lines that are selected begin, and where those since a time do."""
    for after in _windows(attempt, since):
        chunks, silent = _listed(attempt, workers, after)
        end = _end(attempt, chunks, selects, tail, since)
        is_last = not after
        if is_last or (end.is_enough and not silent and _has_heads(chunks, end)):
            return _places(attempt, chunks, end, after)
    raise AssertionError("the last window is all of the log")


def _windows(attempt: StoredAttempt, since: datetime | None) -> Iterable[str]:
    """Yield the times from which chunks are listed, the newest first; at last all are."""
    if attempt.record.log_layout >= ORDERED_LOGS:
        if since:
            yield (since - OVERLAP).strftime(TIME_FORM)
        else:
            times = [item.updated for item in attempt.status_objects().values()]
            newest = clock.parse(max(times)) if times else attempt.run.bucket.now()
            yield from ((newest - window).strftime(TIME_FORM) for window in WINDOWS)
    yield ""


def _listed(attempt: StoredAttempt, workers: Sequence[int], after: str) -> tuple[list[LogChunk], bool]:
    """Return chunks, oldest first, and whether one of the workers has only older ones."""
    if attempt.record.log_layout < ORDERED_LOGS:
        chunks, told = attempt.chunks_of(workers), dict[int, int]()
    else:
        look = attempt.look(after)
        chunks, told = look.chunks, {worker: _told(item) for worker, item in look.statuses.items()}
    chosen = sorted(
        (chunk for chunk in chunks if chunk.worker in workers), key=lambda chunk: chunk.item.generation
    )
    heard = {chunk.worker for chunk in chosen}
    return chosen, any(told.get(worker, 0) for worker in workers if worker not in heard)


def _told(status: Object) -> int:
    """How many chunks a worker tells of; at least 1 where its status does not say."""
    label = read_status_type(status.content_type)
    return label[1] if label else 1


def _end(
    attempt: StoredAttempt,
    chunks: Sequence[LogChunk],
    selects: Callable[[bytes], bool],
    tail: int | None,
    since: datetime | None,
) -> _End:
    """Return the end of the log that has the lines: counts those of which the start was read, too."""
    end, carried, count, block = _End(), dict[int, bytes](), 0, BLOCK
    earliest = clock.iso(since) if since else ""
    for chunk in reversed(chunks):
        end.is_enough = chunk.item.updated < earliest or (tail is not None and count >= tail)
        if end.is_enough:
            return end
        end.chunks.append(chunk)
        end.position = 0 if tail is None else chunk.item.size
        while tail is not None and end.position > 0 and count < tail:
            start, block = max(0, end.position - block), min(2 * block, LARGEST_BLOCK)
            data = attempt.read_log(chunk, start, end.position)
            first, *lines = _lines(data + carried.get(chunk.worker, b""))
            if start == 0 and chunk.number == 1:
                first, lines = b"", [first, *lines]
            carried[chunk.worker] = first if len(first) < LONGEST_LINE else b""
            count += sum(map(selects, lines)) + (len(first) >= LONGEST_LINE)
            end.position = start
    end.is_enough = bool(earliest) or (tail is not None and count >= tail)
    return end


def _lines(data: bytes) -> list[bytes]:
    """Return the lines of some bytes with their ends; at least one."""
    *lines, rest = data.split(b"\n")
    return [*(line + b"\n" for line in lines), *([rest] if rest or not lines else [])]


def _has_heads(chunks: Sequence[LogChunk], end: _End) -> bool:
    """Return whether the chunk before the first of each worker is listed, too: a line may be cut there."""
    numbers = {(chunk.worker, chunk.number) for chunk in chunks}
    first = {chunk.worker: chunk.number for chunk in end.chunks}
    return all(number == 1 or (worker, number - 1) in numbers for worker, number in first.items())


def _places(attempt: StoredAttempt, chunks: Sequence[LogChunk], end: _End, after: str) -> Beginning:
    begins = {chunk.worker: chunk for chunk in end.chunks}
    oldest = end.chunks[-1] if end.chunks else None
    newest = max((chunk.item.generation for chunk in chunks), default=-1)
    workers = sorted({chunk.worker for chunk in chunks})

    def place(worker: int) -> Place:
        first = begins.get(worker)
        limit = first.item.generation if first else newest + 1
        older = [chunk for chunk in chunks if chunk.worker == worker and chunk.item.generation < limit]
        number = max((chunk.number for chunk in older), default=first.number - 1 if first else 0)
        if first is None or first is not oldest or not end.position:
            return Place(number, _cut_line(attempt, older))
        partial = _cut_line(attempt, [*older, first], end.position)
        return Place(number, partial, first.item.name, end.position)

    places = dict(zip(workers, values(fanout(place, workers)), strict=True))
    return Beginning(after, oldest.item.generation if oldest else newest + 1, places)


def _cut_line(attempt: StoredAttempt, chunks: Sequence[LogChunk], position: int | None = None) -> bytes:
    """Return the start of the line that goes on after these chunks, or after a position in the last."""
    line = b""
    for chunk in reversed(chunks):
        limit = chunk.item.size if position is None else position
        position = None
        while limit > 0 and len(line) < LONGEST_LINE:
            start = max(0, limit - BLOCK)
            data = attempt.read_log(chunk, start, limit)
            _, newline, after = data.rpartition(b"\n")
            line = after + line
            if newline:
                return line
            limit = start
        if chunk.number == 1:
            return line
    return line
