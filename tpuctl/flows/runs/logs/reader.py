"""Merges the logs of a run's workers from the bucket, also after the node was deleted.

- The informational lines that TensorFlow's C++ code logs at its start, at every TF_CPP_MIN_LOG_LEVEL.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tpuctl.bucket_layout import chunk_number
from tpuctl.errors import NotFoundError, UsageError
from tpuctl.flows.runs.evidence.decision import WorkerWord
from tpuctl.flows.runs.logs.beginning import LONGEST_LINE, OVERLAP, TIME_FORM, Place, find_beginning
from tpuctl.flows.runs.stored_attempt import LogChunk, Look, StoredAttempt
from tpuctl.host.worker.records import read_status_type
from tpuctl.parallel import WIDTH, fanout, values
from tpuctl.printable import ranges
from tpuctl.runs import ORDERED_LOGS, Run

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""The worker sets it to 1, which hides level INFO, unless the user sets it."""
INFO_LINE = re.compile(
    r"I\d{4} \d\d:\d\d:\d+\.\d{6} +\d+ \S+\.cc:\d+\] "
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
)
"""Lines of Abseil before its initialization, such as TensorFlow 2.21 logs; no variable hides them:
https://github.com/abseil/abseil-cpp/pull/1718"""


def hides_startup_lines(run: Run) -> bool:
    """Return whether a run's user expects no informational lines of TensorFlow: by default."""
    return run.framework == "tensorflow" and LEVEL not in run.environment


def may_have_startup_lines(lines: bytes) -> bool:
    """Return whether one of many lines may be such a line: one quick look at all of them."""
    return b".cc:" in lines or b"absl::InitializeLog" in lines


def is_startup_line(text: str) -> bool:
    """Return whether a line of a log is one of them."""
    return INFO_LINE.match(text) is not None


BLOCK = 4 << 20
"""Bytes of a chunk that are held at once: those of a whole chunk that a worker writes."""
MOST_AT_ONCE = 16 << 20
"""Bytes of small chunks that are fetched at once."""


@dataclass(frozen=True)
class Line:
    """One line that a worker's script printed, or many for a reader that takes them together."""

    worker: int
    data: bytes
    """As it was printed, with its line end if it has one."""
    time: str = ""
    """When its end reached the bucket, by the bucket's clock: ISO-8601, UTC."""

    @property
    def text(self) -> str:
        """The line without its end; what is no UTF-8 is replaced."""
        return _text(self.data)


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")


@dataclass
class _Cursor:
    """How far one worker's log has been read."""

    worker: int
    chunks: int = 0
    """Chunks read without a gap: the worker numbers them from 1."""
    beyond: set[int] = field(default_factory=set)
    """Numbers of those read after a gap: the chunks before were deleted, or others write here."""
    partial: bytes = b""
    """The start of a line whose end has not been shipped yet."""
    searched: int = 0
    """The number of chunks that the worker had told of when all were listed last."""
    reading: str = ""
    """The chunk that is being read: a failure keeps how far it was."""
    position: int = 0
    time: str = ""
    """When the newest chunk that was read reached the bucket."""

    def add(self, number: int) -> None:
        """Note that a chunk with this number is read."""
        if number > self.chunks:
            self.beyond.add(number)
        while self.chunks + 1 in self.beyond:
            self.chunks += 1
            self.beyond.remove(self.chunks)


class LogReader:
    """Reads the new lines of one attempt's logs, of all workers or of some."""

    def __init__(
        self,
        attempt: StoredAttempt,
        workers: Iterable[int] | None = None,
        hides: Callable[[str], bool] | None = None,
        text: str = "",
        splits: Callable[[bytes], bool] | None = None,
    ) -> None:
        """Take `hides`, which tells of a line whether it is left out, and a `text` that lines must have.

        With `splits` many lines come as one, unless it says of them that they have to be looked at one by
        one: a large log costs little then. Raises UsageError for a worker that does not run the script.
        """
        self._hides = hides or (lambda text: False)
        self._text = text.encode()
        self._splits = splits or (lambda lines: True)
        self.hidden = 0
        """Lines that were left out by `hides`."""
        own = attempt.record.workers
        selected = None if workers is None else set(workers)
        for worker in sorted(selected or ()):
            if worker not in own:
                raise UsageError(
                    f"Worker {worker} does not run '{attempt.run.name}'.",
                    hint=f"It runs on: {ranges(own)}.",
                )
        self._selected = selected
        self.go_to(attempt)

    def go_to(self, attempt: StoredAttempt) -> None:
        """Read an attempt of the run from its beginning on, of the same workers."""
        self.attempt = attempt
        own = set(attempt.record.workers)
        self.workers = sorted(own if self._selected is None else own & self._selected)
        self._cursors = list(map(_Cursor, self.workers))
        self._names = set[str]()
        """The chunks that were read: others may write one with the number of a worker's own."""
        self._start = ""
        """The time of the last look by the bucket's clock, and a little before: names have its times."""
        self._first = 0
        """The generation of the first chunk that is read."""
        self._listed: list[LogChunk] | None = None
        """What `look` has listed, before its lines are read."""
        self._told: dict[int, int] = {}
        """Worker -> how many chunks it has told of."""
        self._next_start = ""

    def begin(self, tail: int | None, since: float | None) -> None:
        """Leave out all but the last `tail` lines, or what came more than `since` seconds ago.

        Only the end of the log is read for that. More than `tail` lines may follow: see `last`.
        """
        if tail is None and since is None:
            return
        moment = None if since is None else self.attempt.run.bucket.now() - timedelta(seconds=since)
        beginning = find_beginning(self.attempt, self.workers, self._selects, tail, moment)
        self._start, self._first = beginning.after, beginning.generation
        for cursor in self._cursors:
            place = beginning.places.get(cursor.worker, Place(0))
            cursor.chunks, cursor.partial, cursor.reading, cursor.position = place

    def _selects(self, line: bytes) -> bool:
        return self._text in line and not self._hides(_text(line))

    def look(self) -> Look:
        """List what is new, whose lines `lines` yields then; costs one listing.

        It tells of the workers' statuses, too: `StoredAttempt.words_of`.
        """
        began = self.attempt.run.bucket.now()
        if self.attempt.record.log_layout < ORDERED_LOGS:
            return Look(self.attempt.status_objects(), [])
        look = self.attempt.look(self._start)
        labels = {worker: read_status_type(item.content_type) for worker, item in look.statuses.items()}
        self._told = {worker: label[1] if label else 0 for worker, label in labels.items()}
        self._listed = self._new(look.chunks)
        late = [cursor for cursor in self._cursors if self._is_late(cursor)]
        if self._start and (late or self._has_gap(self._listed)):
            self._listed = self._new(self.attempt.ordered_chunks())
        for cursor in late:
            cursor.searched = self._told[cursor.worker]
        self._next_start = (began - OVERLAP).strftime(TIME_FORM)
        return look

    def _is_late(self, cursor: _Cursor) -> bool:
        """Whether a worker tells of a chunk that was written under an early time, and not looked for yet."""
        listed = [chunk.number for chunk in self._listed or () if chunk.worker == cursor.worker]
        known = max((cursor.chunks, cursor.searched, *cursor.beyond, *listed))
        return self._told.get(cursor.worker, 0) > known

    def is_complete(self, words: Iterable[WorkerWord]) -> bool:
        """Return whether every worker has said its last word, and the last look listed the end of its log."""
        told = {word.worker: word.status.log_chunks for word in words if word.status and word.is_over}
        numbers = {(chunk.worker, chunk.number) for chunk in self._listed or ()}
        return self._listed is not None and all(
            cursor.worker in told
            and all(
                (cursor.worker, number) in numbers or number in cursor.beyond
                for number in range(cursor.chunks + 1, told[cursor.worker] + 1)
            )
            for cursor in self._cursors
        )

    def lines(self) -> Iterator[Line]:
        """Yield the complete lines since the last call, chunk by chunk in the order they were written."""
        yield from self._new_lines(is_complete=False)

    def _new_lines(self, *, is_complete: bool) -> Iterator[Line]:
        cursors = {cursor.worker: cursor for cursor in self._cursors}
        unread = sorted(self._unread(is_complete=is_complete), key=lambda chunk: chunk.item.generation)
        for chunk, data in self._fetched(unread, {cursor.reading for cursor in self._cursors}):
            cursor = cursors[chunk.worker]
            for line in self._complete_lines(chunk, cursor, data):
                if self._text not in line.data:
                    continue
                if self._splits(line.data) and self._hides(line.text):
                    self.hidden += 1
                else:
                    yield line
            self._names.add(chunk.item.name)
            cursor.add(chunk.number)  # after it was read: one whose reading fails is read again
        self._start = self._next_start  # later than nothing that is still to be read

    def all_lines(self) -> Iterator[Line]:
        """Yield the lines since the last call, with those that have no line end."""
        yield from self._new_lines(is_complete=True)
        yield from self.rest()

    def present_lines(self) -> Iterator[Line]:
        """Yield the lines that there are, with those that have no line end."""
        yield from self.lines()
        yield from self.rest()

    def rest(self) -> Iterator[Line]:
        """Yield each worker's last line if it has no line end."""
        for cursor in self._cursors:
            if cursor.partial and self._selects(cursor.partial):
                yield Line(cursor.worker, cursor.partial, cursor.time)
            cursor.partial = b""

    def unfinished(self) -> list[Line]:
        """Return each worker's last line that has no end yet, such as that of a progress bar."""
        lines = [Line(cursor.worker, cursor.partial, cursor.time) for cursor in self._cursors]
        return [line for line in lines if line.data and self._selects(line.data)]

    def _unread(self, *, is_complete: bool) -> list[LogChunk]:
        """Return chunks that were not read yet; with `is_complete` also those whose names are old."""
        if self.attempt.record.log_layout < ORDERED_LOGS:
            listed = values(fanout(self._by_worker, self._cursors))
            return [chunk for chunks in listed for chunk in chunks]
        if is_complete:
            return self._new(self.attempt.ordered_chunks())
        if self._listed is None:
            self.look()
        chunks, self._listed = self._listed or [], None
        return chunks

    def _by_worker(self, cursor: _Cursor) -> list[LogChunk]:
        items = self.attempt.log_chunks(cursor.worker, after=cursor.chunks)
        return self._new(LogChunk(item, cursor.worker, chunk_number(item.name)) for item in items)

    def _new(self, chunks: Iterable[LogChunk]) -> list[LogChunk]:
        workers = set(self.workers)
        return [
            chunk
            for chunk in chunks
            if chunk.worker in workers
            and chunk.item.name not in self._names
            and chunk.item.generation >= self._first
        ]

    def _has_gap(self, chunks: Iterable[LogChunk]) -> bool:
        """Whether a chunk before one of these is missing: it was written late, under an early time."""
        numbers: dict[int, set[int]] = {}
        for chunk in chunks:
            numbers.setdefault(chunk.worker, set()).add(chunk.number)
        newest = {cursor.worker: max((cursor.chunks, *cursor.beyond)) for cursor in self._cursors}
        later = {worker: [n for n in listed if n > newest[worker]] for worker, listed in numbers.items()}
        return any(len(listed) < max(listed) - newest[worker] for worker, listed in later.items() if listed)

    def _fetched(
        self, chunks: Sequence[LogChunk], begun: Collection[str]
    ) -> Iterator[tuple[LogChunk, bytes | None]]:
        """Yield chunks with their bytes, several fetched at once; None for one to be read in blocks."""
        fetches = self._fetches(chunks, begun)
        batches = _batches(list(dict.fromkeys(fetches.values())))
        for chunk in chunks:
            fetch = fetches[chunk.item.name]
            if not fetch.is_done:
                fanout(_Fetch.fetch, next(batches))
            yield chunk, fetch.take(chunk)

    def _fetches(self, chunks: Iterable[LogChunk], begun: Collection[str]) -> dict[str, _Fetch]:
        """Return what is fetched by one request, by the names of chunks: those together that were joined."""
        most = MOST_AT_ONCE // max(4, len(self._cursors))
        """Bytes for each worker: one of its objects is held while those of the others are read."""
        fetches, joined = dict[str, _Fetch](), dict[str, _Fetch]()
        for chunk in chunks:
            holder = (chunk.holder or chunk.item).name
            fetch = joined.get(holder)
            if fetch is None or not fetch.add(chunk, most):
                limit = -1 if chunk.item.name in begun else BLOCK
                fetch = joined[holder] = _Fetch(self.attempt, [chunk], limit)
            fetches[chunk.item.name] = fetch
        return fetches

    def _complete_lines(self, chunk: LogChunk, cursor: _Cursor, data: bytes | None) -> Iterator[Line]:
        """Yield the lines that end in a chunk, and pieces of a longer one than memory should hold."""
        for block in self._blocks(chunk, cursor) if data is None else (data,):
            end = block.rfind(b"\n") + 1
            lines, cursor.partial = (
                (cursor.partial + block[:end], block[end:]) if end else (b"", cursor.partial + block)
            )
            cursor.time = chunk.item.updated
            if lines and not self._splits(lines):
                yield Line(cursor.worker, lines, cursor.time)
            elif lines:
                yield from (
                    Line(cursor.worker, text + b"\n", cursor.time) for text in lines[:-1].split(b"\n")
                )
            if len(cursor.partial) >= LONGEST_LINE:
                yield Line(cursor.worker, cursor.partial, cursor.time)
                cursor.partial = b""

    def _blocks(self, chunk: LogChunk, cursor: _Cursor) -> Iterator[bytes]:
        """Yield a chunk's bytes in blocks: no more of one that is deleted or replaced while it is read.

        One that was replaced before is read as it is now: a worker that lost an answer writes it again.
        After a failure it is read from where it was.
        """
        item = chunk.item
        if cursor.reading != item.name:
            cursor.reading, cursor.position = item.name, 0
        while cursor.position < item.size:
            end = min(cursor.position + BLOCK, item.size)
            try:
                block = self.attempt.read_log(chunk._replace(item=item), cursor.position, end)
            except NotFoundError as error:
                current = self.attempt.run.bucket.stat(item.name)
                if cursor.position or chunk.holder or current is None:
                    self.attempt.run.warn(error.message)
                    return
                item = current
                continue
            cursor.position += len(block)
            yield block


class _Fetch:
    """What one request fetches: a chunk, or several that lie side by side in one object."""

    def __init__(self, attempt: StoredAttempt, chunks: list[LogChunk], limit: int) -> None:
        self._attempt = attempt
        self._chunks = chunks
        self._limit = limit
        """Most bytes of a single chunk that is not read in blocks."""
        self.size = chunks[0].item.size
        self.is_done = False
        self._data: bytes | None = None

    def add(self, chunk: LogChunk, most: int) -> bool:
        """Return whether a chunk is fetched with those before: it goes on where they end."""
        first = self._chunks[0]
        fits = chunk.start == first.start + self.size and self.size + chunk.item.size <= min(
            most, self._limit
        )
        if fits:
            self._chunks.append(chunk)
            self.size += chunk.item.size
        return fits

    def fetch(self) -> None:
        """Fetch it, unless it is read in blocks; raises TpuctlError."""
        self.is_done = True
        if self.size <= self._limit:
            self._data = self._attempt.read_log(self._chunks[0], 0, self.size)

    def take(self, chunk: LogChunk) -> bytes | None:
        """Return a chunk's bytes, or None for one to be read in blocks; the last one taken frees all."""
        if self._data is None:
            return None
        start = chunk.start - self._chunks[0].start
        data = self._data[start : start + chunk.item.size]
        if chunk is self._chunks[-1]:
            self._data = None
        return data


def _batches(fetches: Sequence[_Fetch]) -> Iterator[list[_Fetch]]:
    """Yield what is fetched at once: no more than memory should hold."""
    batch, size = list[_Fetch](), 0
    for fetch in fetches:
        if batch and (len(batch) == WIDTH or size + fetch.size > MOST_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(fetch)
        size += fetch.size
    if batch:
        yield batch


def last(lines: Iterator[Line], count: int | None) -> Iterable[Line]:
    """Return the last `count` lines, or for None all of them, each as soon as it comes."""
    return lines if count is None else deque(lines, maxlen=count)
