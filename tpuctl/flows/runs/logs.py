"""Merges the logs of a run's workers from the bucket, also after the node was deleted."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.errors import InterruptedByUser, UsageError
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredAttempt, StoredRun
from tpuctl.parallel import fanout, values
from tpuctl.polling import Backoff, Sleep, poll
from tpuctl.runs import Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Object

EVERY_SECOND = Backoff(first=1.0, longest=1.0)


@dataclass(frozen=True)
class Line:
    """One line that a worker's script printed, without its line end."""

    worker: int
    text: str


@dataclass
class _Cursor:
    """How far one worker's log has been read."""

    worker: int
    chunks: int = 0
    partial: bytes = b""
    """The start of a line whose end has not been shipped yet."""


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

    def lines(self) -> Iterator[Line]:
        """Yield the complete lines since the last call, chunk by chunk in the order they were written."""
        unread = values(fanout(self._unread, self._cursors))
        chunks = [
            (chunk, cursor) for cursor, listed in zip(self._cursors, unread, strict=True) for chunk in listed
        ]
        for chunk, cursor in sorted(chunks, key=lambda pair: pair[0].generation):
            cursor.chunks += 1
            data = cursor.partial + self._attempt.run.bucket.read(chunk.name)
            *complete, cursor.partial = data.split(b"\n")
            for text in map(_decode, complete):
                if self._hides(text):
                    self.hidden += 1
                else:
                    yield Line(cursor.worker, text)

    def all_lines(self) -> Iterator[Line]:
        """Yield the lines since the last call, with those that have no line end."""
        yield from self.lines()
        yield from self.rest()

    def rest(self) -> Iterator[Line]:
        """Yield each worker's last line if it has no line end."""
        for cursor in self._cursors:
            if cursor.partial:
                yield Line(cursor.worker, _decode(cursor.partial))
                cursor.partial = b""

    def _unread(self, cursor: _Cursor) -> list[Object]:
        return self._attempt.log_chunks(cursor.worker, after=cursor.chunks)


def follow(
    run: StoredRun,
    provider: Provider,
    reader: LogReader,
    show: Callable[[Line], None],
    tail: int | None = None,
    sleep: Sleep = time.sleep,
) -> Verdict:
    """Show new lines each second until the run has ended, and return its verdict.

    Begins with the last `tail` lines, or with all.
    On Ctrl-C raises InterruptedByUser with the command to resume; the run keeps running.
    """

    def show_new_lines() -> Verdict | None:
        nonlocal tail
        verdict = settle(run, provider, clock.now()).verdict  # before the lines: none can come after it
        for line in last(reader.all_lines() if verdict else reader.lines(), tail):
            show(line)
        tail = None
        return verdict

    try:
        return poll(
            show_new_lines,
            awaiting=f"run '{run.name}' to end",
            timeout=math.inf,
            backoff=EVERY_SECOND,
            sleep=sleep,
        )
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted; run '{run.name}' keeps running.", hint=f"Resume with: tpuctl logs -f {run.name}"
        ) from error


def last(lines: Iterator[Line], count: int | None) -> Iterable[Line]:
    """Return the last `count` lines, or for None all of them, each as soon as it comes."""
    return lines if count is None else deque(lines, maxlen=count)


def _decode(text: bytes) -> str:
    return text.rstrip(b"\r").decode("utf-8", "replace")
