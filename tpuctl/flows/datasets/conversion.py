"""Shards made several at once: what is done so far, a stop for all when one fails, and all that is bad."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event, Lock

from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.output.shards import Shard, ShardResult, ShardStream
from tpuctl.data.plan import DatasetPlan

WIDTH = 4
"""Shards under way at once; each holds one part of 8 MiB in memory."""
MOST_BAD = 100
SEARCH = 10.0
"""Bad records that are looked for when one was found, and seconds that may take."""


@dataclass(frozen=True)
class Done:
    """How far a conversion has come."""

    records: int
    total: int
    bytes: int
    """Bytes of shards that were made."""


Progress = Callable[[Done], None]


class Conversion:
    """The conversion of all shards of a plan."""

    def __init__(self, plan: DatasetPlan, progress: Progress, *, skip_bad: bool) -> None:
        self._plan = plan
        self._progress = progress
        self._skip_bad = skip_bad
        self._stop = Event()
        self._lock = Lock()
        self._records = 0
        self._bytes = 0

    def run(self, work: Callable[[Shard], ShardResult], shards: Sequence[Shard]) -> list[ShardResult]:
        """Call `work` on every shard and return the notes; raises the first error, and BadRecordsError first.

        With one error, no further shard begins, and those under way end at their next piece.
        """
        pool = ThreadPoolExecutor(WIDTH, thread_name_prefix="shard")
        try:
            futures = [pool.submit(self._one, work, shard) for shard in shards]
            wait(futures, return_when=FIRST_EXCEPTION)
            self._raise_first(futures)
            return [future.result() for future in futures]
        finally:
            self._stop.set()
            pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C, what hangs holds nobody up

    def stream(self, shard: Shard) -> ShardStream:
        """Return the bytes of a shard; they are counted as they are read."""
        return shard.stream(skip_bad=self._skip_bad, report=self.count)

    def count(self, records: int, size: int = 0) -> None:
        """Tell of progress; raises _Stopped when another shard has failed."""
        if self._stop.is_set():
            raise _Stopped
        with self._lock:
            self._records += records
            self._bytes += size
            done = min(self._records, self._plan.records)  # a shard that is made again counts again
            self._progress(Done(done, self._plan.records, self._bytes))

    def _one(self, work: Callable[[Shard], ShardResult], shard: Shard) -> ShardResult:
        if self._stop.is_set():
            raise _Stopped
        try:
            return work(shard)
        except BaseException:
            self._stop.set()
            raise

    def _raise_first(self, futures: Sequence[Future[ShardResult]]) -> None:
        if not self._stop.is_set():
            return
        wait(futures)
        errors = [error for future in futures if (error := future.exception())]
        bad = [one for error in errors if isinstance(error, BadRecordsError) for one in error.bad]
        if bad:
            raise self._all_bad(bad)
        raise next(error for error in errors if not isinstance(error, _Stopped))

    def _all_bad(self, bad: Sequence[BadRecord]) -> BadRecordsError:
        """Look for more, in the order of the source: who has mended one does not want to meet the next."""
        found = {(one.file, one.line): one for one in bad}
        deadline = time.monotonic() + SEARCH
        through = True
        for read, more in self._plan.search():
            found |= {(one.file, one.line): one for one in more}
            if len(found) >= MOST_BAD or time.monotonic() > deadline:
                through = read == self._plan.records
                break
        return BadRecordsError([found[key] for key in sorted(found)], at_least=not through)


class _Stopped(Exception):
    """Another shard has failed."""
