"""The merged logs of a run's workers, from the bucket: also after the machine is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import RunPaths
from tpuctl.errors import InterruptedByUser, UsageError
from tpuctl.flows.runs import outcome as verdicts
from tpuctl.parallel import fanout, values
from tpuctl.runs import Attempt, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.cloud.tpu import TpuApi

INTERVAL = 1.0


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
    rest: bytes = b""
    fresh: list[Object] = field(default_factory=list)


class LogReader:
    """Reads what is new in the logs of one attempt."""

    def __init__(self, bucket: Bucket, run: str, attempt: Attempt, worker: int | None = None) -> None:
        self._bucket = bucket
        self._paths = RunPaths(run)
        self._attempt = attempt.attempt
        if worker is not None and worker not in attempt.workers:
            numbers = ", ".join(map(str, attempt.workers))
            raise UsageError(f"Worker {worker} does not run '{run}'.", hint=f"It runs on: {numbers}.")
        chosen = attempt.workers if worker is None else (worker,)
        self._cursors = [_Cursor(one) for one in chosen]

    def lines(self) -> Iterator[Line]:
        """Yield the whole lines that have come since the last call, chunk by chunk as they were written."""
        values(fanout(self._look, self._cursors))
        fresh = [(chunk, cursor) for cursor in self._cursors for chunk in cursor.fresh]
        for chunk, cursor in sorted(fresh, key=lambda one: one[0].generation):
            cursor.chunks += 1
            *whole, cursor.rest = (cursor.rest + self._bucket.read(chunk.name)).split(b"\n")
            for text in whole:
                yield Line(cursor.worker, _decode(text))

    def rest(self) -> Iterator[Line]:
        """Yield last lines that never got their line end."""
        for cursor in self._cursors:
            if cursor.rest:
                yield Line(cursor.worker, _decode(cursor.rest))
                cursor.rest = b""

    def _look(self, cursor: _Cursor) -> None:
        folder = self._paths.worker(self._attempt, cursor.worker) + "log/"
        start = self._paths.log(self._attempt, cursor.worker, cursor.chunks + 1)
        cursor.fresh = self._bucket.objects(folder, start=start)


def follow(
    bucket: Bucket,
    tpu: TpuApi,
    run: str,
    reader: LogReader,
    show: Callable[[Line], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Verdict:
    """Show lines as they come until the run has ended, and return its verdict.

    On Ctrl-C raises InterruptedByUser with the command that comes back: the run goes on.
    """
    try:
        while True:
            found = verdicts.settle(bucket, tpu, run, clock.now())  # before the lines: none can come after it
            for line in reader.lines():
                show(line)
            if found:
                for line in reader.rest():
                    show(line)
                return found
            sleep(INTERVAL)
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted; run '{run}' goes on.", hint=f"Come back with: tpuctl logs -f {run}"
        ) from error


def _decode(text: bytes) -> str:
    return text.rstrip(b"\r").decode("utf-8", "replace")
