"""Merges the logs of a run's workers from the bucket, also after the node was deleted."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import chunk_number
from tpuctl.errors import DeadlineError, InterruptedByUser, NotFoundError, UsageError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import RunState, settle
from tpuctl.flows.runs.stored_attempt import LogChunk, StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.parallel import fanout, values
from tpuctl.polling import Backoff, Sleep, poll
from tpuctl.runs import ORDERED_LOGS, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object

EVERY_SECOND = Backoff(first=1.0, longest=1.0)
BLOCK = 4 << 20
"""Bytes of a chunk that are held at once: those of a whole chunk that a worker writes."""
TIME_FORM = "%Y%m%dT%H%M%S"
OVERLAP = timedelta(seconds=60)
"""How much later than its name says a chunk may appear without being looked for."""
FULL_LOOK = 60
"""Each so many looks all chunks are listed: one that was written very late has no other way to be seen."""
LONGEST_LINE = 8 << 20
"""Bytes of a line after which it is shown, and what follows as the next."""


@dataclass(frozen=True)
class Line:
    """One line that a worker's script printed."""

    worker: int
    data: bytes
    """As it was printed, with its line end if it has one."""

    @property
    def text(self) -> str:
        """The line without its end; what is no UTF-8 is replaced."""
        return self.data.rstrip(b"\r\n").decode("utf-8", "replace")


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

    def add(self, number: int) -> None:
        """Note that a chunk with this number is read."""
        if number > self.chunks:
            self.beyond.add(number)
        while self.chunks + 1 in self.beyond:
            self.chunks += 1
            self.beyond.remove(self.chunks)


class LogReader:
    """Reads the new lines of one attempt's logs, of all workers or of one."""

    def __init__(
        self, attempt: StoredAttempt, worker: int | None = None, hides: Callable[[str], bool] | None = None
    ) -> None:
        """Take `hides`, which tells of a line whether it is left out."""
        self._attempt = attempt
        self._hides = hides or (lambda text: False)
        self.hidden = 0
        """Lines that were left out."""
        workers = attempt.record.workers
        if worker is not None and worker not in workers:
            numbers = ", ".join(map(str, workers))
            raise UsageError(
                f"Worker {worker} does not run '{attempt.run.name}'.", hint=f"It runs on: {numbers}."
            )
        self.workers = [number for number in workers if worker in (None, number)]
        self._cursors = list(map(_Cursor, self.workers))
        self._names = set[str]()
        """The chunks that were read: others may write one with the number of a worker's own."""
        self._start = ""
        """The time of the last look by the bucket's clock, and a little before: names have its times."""
        self._looks = 0

    def lines(self) -> Iterator[Line]:
        """Yield the complete lines since the last call, chunk by chunk in the order they were written."""
        yield from self._new_lines(is_complete=False)

    def _new_lines(self, *, is_complete: bool) -> Iterator[Line]:
        cursors = {cursor.worker: cursor for cursor in self._cursors}
        for chunk in sorted(self._unread(is_complete=is_complete), key=lambda chunk: chunk.item.generation):
            cursor = cursors[chunk.worker]
            for line in self._complete_lines(chunk.item, cursor):
                if self._hides(line.text):
                    self.hidden += 1
                else:
                    yield line
            self._names.add(chunk.item.name)
            cursor.add(chunk.number)  # after it was read: one whose reading fails is read again

    def all_lines(self) -> Iterator[Line]:
        """Yield the lines since the last call, with those that have no line end."""
        yield from self._new_lines(is_complete=True)
        yield from self.rest()

    def rest(self) -> Iterator[Line]:
        """Yield each worker's last line if it has no line end."""
        for cursor in self._cursors:
            if cursor.partial:
                yield Line(cursor.worker, cursor.partial)
                cursor.partial = b""

    def _unread(self, *, is_complete: bool) -> list[LogChunk]:
        """Return chunks that were not read yet; with `is_complete` also those whose names are old."""
        if self._attempt.record.log_layout < ORDERED_LOGS:
            listed = values(fanout(self._by_worker, self._cursors))
            return [chunk for chunks in listed for chunk in chunks]
        self._looks += 1
        start = "" if is_complete or self._looks % FULL_LOOK == 0 else self._start
        began = self._attempt.run.bucket.now()
        chunks = self._new(self._attempt.ordered_chunks(start))
        if start and self._has_gap(chunks):
            chunks = self._new(self._attempt.ordered_chunks())
        self._start = (began - OVERLAP).strftime(TIME_FORM)
        return chunks

    def _by_worker(self, cursor: _Cursor) -> list[LogChunk]:
        items = self._attempt.log_chunks(cursor.worker, after=cursor.chunks)
        return self._new(LogChunk(item, cursor.worker, chunk_number(item.name)) for item in items)

    def _new(self, chunks: Iterable[LogChunk]) -> list[LogChunk]:
        workers = set(self.workers)
        return [chunk for chunk in chunks if chunk.worker in workers and chunk.item.name not in self._names]

    def _has_gap(self, chunks: Iterable[LogChunk]) -> bool:
        """Whether a chunk before one of these is missing: it was written late, under an early time."""
        numbers: dict[int, set[int]] = {}
        for chunk in chunks:
            numbers.setdefault(chunk.worker, set()).add(chunk.number)
        newest = {cursor.worker: max((cursor.chunks, *cursor.beyond)) for cursor in self._cursors}
        return any(set(range(newest[worker] + 1, max(listed))) - listed for worker, listed in numbers.items())

    def _complete_lines(self, chunk: Object, cursor: _Cursor) -> Iterator[Line]:
        """Yield the lines that end in a chunk, and pieces of a longer one than memory should hold."""
        for block in self._blocks(chunk):
            *complete, cursor.partial = (cursor.partial + block).split(b"\n")
            yield from (Line(cursor.worker, text + b"\n") for text in complete)
            if len(cursor.partial) >= LONGEST_LINE:
                yield Line(cursor.worker, cursor.partial)
                cursor.partial = b""

    def _blocks(self, chunk: Object) -> Iterator[bytes]:
        """Yield a chunk's bytes in blocks: no more of one that is deleted or replaced while it is read.

        One that was replaced before is read as it is now: a worker that lost an answer writes it again.
        """
        bucket = self._attempt.run.bucket
        stream, position = bucket.stream(chunk, BLOCK), 0
        while True:
            try:
                block = stream.read(BLOCK)
            except NotFoundError as error:
                current = bucket.stat(chunk.name)
                if position or current is None:
                    self._attempt.run.warn(error.message)
                    return
                stream = bucket.stream(current, BLOCK)
                continue
            if not block:
                return
            position += len(block)
            yield block


def follow(
    run: StoredRun,
    witnesses: Witnesses,
    reader: LogReader,
    show: Callable[[Line], None],
    tail: int | None = None,
    sleep: Sleep = time.sleep,
) -> Verdict:
    """Show new lines each second until the run has ended, and return its verdict.

    Begins with the last `tail` lines, or with all. A service that does not answer is said once, and waited
    for. Raises BadObjectError where a record that decides cannot be read: no verdict can come any more.
    On Ctrl-C raises InterruptedByUser with the command to resume; the run keeps running.
    """
    follower = _Follower(run, witnesses, reader, show, tail)
    try:
        return poll(
            follower.look,
            awaiting=f"run '{run.name}' to end",
            timeout=math.inf,
            backoff=EVERY_SECOND,
            sleep=sleep,
        )
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted; run '{run.name}' keeps running.", hint=f"Resume with: tpuctl logs -f {run.name}"
        ) from error


class _Follower:
    """One command that follows a run."""

    def __init__(
        self,
        run: StoredRun,
        witnesses: Witnesses,
        reader: LogReader,
        show: Callable[[Line], None],
        tail: int | None,
    ) -> None:
        self._run = run
        self._witnesses = witnesses
        self._reader = reader
        self._show = show
        self._tail = tail
        self._trouble = ""

    def look(self) -> Verdict | None:
        """Show what is new, and return the verdict if there is one."""
        try:
            state = settle(self._run, self._witnesses)  # before the lines: none can come after a verdict
            has_ended = state.verdict or state.error
            for line in last(self._reader.all_lines() if has_ended else self._reader.lines(), self._tail):
                self._show(line)
        except DeadlineError as error:  # a service that does not answer: the run may go on
            self._say("no answer", error.message)
            return None
        self._tail = None
        self._say_doubt(state)
        if state.error:
            raise state.error
        return state.verdict

    def _say_doubt(self, state: RunState) -> None:
        if state.verdict or state.error:
            return
        if state.unanswered:
            self._say("unanswered", f"What the TPU is doing is unknown: {state.unanswered}")
        elif state.doubt:
            self._say("doubt", f"{state.doubt[0].upper()}{state.doubt[1:]}.")
        elif self._trouble:
            self._say("", "Every worker is heard of again.")

    def _say(self, trouble: str, text: str) -> None:
        """Say a trouble when it begins and when it is over, and not at each look."""
        if trouble != self._trouble:
            self._run.warn(f"{text} Still following." if trouble else text)
        self._trouble = trouble


def last(lines: Iterator[Line], count: int | None) -> Iterable[Line]:
    """Return the last `count` lines, or for None all of them, each as soon as it comes."""
    return lines if count is None else deque(lines, maxlen=count)
