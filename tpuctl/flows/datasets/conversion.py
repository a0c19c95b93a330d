"""Converts shards in parallel: reports progress, stops all if one fails, collects bad records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event, Lock

from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.output.shards import Shard, ShardResult, ShardStream
from tpuctl.data.plan import DatasetPlan

WIDTH = 4
"""Shards converted at once; each holds one part of 8 MiB in memory."""
MOST_BAD = 100
SEARCH = 10.0
"""Bad records to look for once there is one, and the seconds that may take."""


@dataclass(frozen=True)
class ConversionProgress:
    """How far a conversion is."""

    records: int
    total: int
    bytes: int
    """Bytes of shards converted so far."""


Report = Callable[[ConversionProgress], None]
"""Takes the progress of a conversion, and shows it."""


class Conversion:
    """The conversion of all shards of a plan."""

    def __init__(self, plan: DatasetPlan, report: Report, *, skip_bad: bool) -> None:
        self._plan = plan
        self._report = report
        self._skip_bad = skip_bad
        self._stop = Event()
        self._lock = Lock()
        self._records = 0
        self._bytes = 0

    def run(self, work: Callable[[Shard], ShardResult], shards: Sequence[Shard]) -> list[ShardResult]:
        """Call `work` on every shard and return the results; raises BadRecordsError, or else the first error.

        With one error, no further shard begins, and those under way end at their next piece.
        """
        pool = ThreadPoolExecutor(WIDTH, thread_name_prefix="shard")
        try:
            futures = [pool.submit(self._run_one, work, shard) for shard in shards]
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
        """Report progress; raises _Stopped when another shard has failed."""
        if self._stop.is_set():
            raise _Stopped
        with self._lock:
            self._records += records
            self._bytes += size
            records_so_far = min(self._records, self._plan.records)  # a shard sent again counts again
            self._report(ConversionProgress(records_so_far, self._plan.records, self._bytes))

    def _run_one(self, work: Callable[[Shard], ShardResult], shard: Shard) -> ShardResult:
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
        bad = [record for error in errors if isinstance(error, BadRecordsError) for record in error.bad]
        if bad:
            raise self._all_bad(bad)
        raise next(error for error in errors if not isinstance(error, _Stopped))

    def _all_bad(self, bad: Sequence[BadRecord]) -> BadRecordsError:
        """Look for more, in the order of the source, so that a user can fix all of them at once."""
        by_place = {(record.file, record.line): record for record in bad}
        deadline = time.monotonic() + SEARCH
        complete = True
        for records_read, more in self._plan.search():
            by_place |= {(record.file, record.line): record for record in more}
            if len(by_place) >= MOST_BAD or time.monotonic() > deadline:
                complete = records_read == self._plan.records
                break
        return BadRecordsError([by_place[place] for place in sorted(by_place)], at_least=not complete)


class _Stopped(Exception):
    """Another shard has failed."""
