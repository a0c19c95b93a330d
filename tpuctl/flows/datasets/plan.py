"""Defines the request of an upload, which is sent to Beam workers, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_layout import split_gs
from tpuctl.bucket_objects import ListedObjects
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.output.shards import DEFAULT_SIZE, Shard, ShardResult, ShardStream
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.source import BadRecord, BadRecordsError, Options
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.framing import read_records
from tpuctl.data.tokens import FILE as VOCABULARY
from tpuctl.data.tokens import Vocabulary, parse_vocabulary
from tpuctl.data.trees.objects import object_tree
from tpuctl.data.trees.tree import Tree
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, TpuctlError, UsageError

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud
    from tpuctl.cloud.storage import Bucket


class UploadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A source, and all that decides on the dataset that is made of it; can be sent as JSON or pickled."""

    source: str
    """Path of a file or a folder; `gs://BUCKET/NAME` of an object or a folder in a bucket."""
    ref: DatasetRef
    kind: str | None = None
    """Kind of source, a key of `READERS`; None: inferred from the names of files."""
    options: Options = Options()
    splits: str | None = None
    """Shares of the splits, `train=0.8,test=0.2`; None: those of the source, or all in one."""
    hosts: int = 1
    """TPU hosts that will read the dataset."""
    shards: int | None = None
    """Shards of each split; None: as many as `shard_size` asks for."""
    shard_size: int | None = None
    """In bytes; None: that of TensorFlow's guide."""
    seed: int = 0
    skip_bad: bool = False
    """Leave bad records out instead of refusing the source."""
    vocabulary: tuple[str, ...] | None = None
    """Tokens by their ids; None: no tokens, or a vocabulary made from the training split."""

    headers: bytes = b""
    """`Source.headers` of its plan, so that no worker looks at every picture again."""

    @property
    def is_in_bucket(self) -> bool:
        """Whether the source is in a bucket, and not on this machine."""
        return self.source.startswith("gs://")

    @property
    def source_exists(self) -> bool:
        """Whether there is a file or a folder at the path of the source; in a bucket, reading it tells."""
        return self.is_in_bucket or Path(self.source).exists()

    def fixed(self, vocabulary: tuple[str, ...] | None, headers: bytes = b"") -> UploadRequest:
        """Return the request with an absolute path and what its plan has learnt: for other processes."""
        source = self.source if self.is_in_bucket else str(Path(self.source).absolute())
        return msgspec.structs.replace(self, source=source, vocabulary=vocabulary, headers=headers)


ReportRecords = Callable[[int, int], None]
"""Takes the records listed so far and their number, 0 while it is not known."""


OpenBucket = Callable[[str], ListedObjects]
"""Returns the objects of a bucket by its name."""


def no_buckets(name: str) -> ListedObjects:
    """Refuse every bucket: for callers whose sources are on this machine."""
    raise UsageError(
        f"gs://{name} cannot be read here.", hint="Copy the source to this machine.", bucket=name
    )


def make_plan(
    request: UploadRequest,
    report: ReportRecords = lambda listed, total: None,
    open_bucket: OpenBucket = no_buckets,
) -> DatasetPlan:
    """List the records of the source and decide on splits and shards; the caller closes `plan.source`.

    Raises UsageError that names the option, or what is bad in the source, and the errors of its bucket.
    """
    return plan(
        _source(request, open_bucket),
        name=request.ref.name,
        version=request.ref.version,
        kind=request.kind,
        options=request.options,
        splits=request.splits,
        hosts=request.hosts,
        shards=request.shards,
        shard_size=DEFAULT_SIZE if request.shard_size is None else request.shard_size,
        seed=request.seed,
        skip_bad=request.skip_bad,
        vocabulary=None if request.vocabulary is None else Vocabulary(request.vocabulary),
        headers=request.headers,
        progress=report,
    )


@contextmanager
def open_plan(
    request: UploadRequest,
    report: ReportRecords = lambda listed, total: None,
    open_bucket: OpenBucket = no_buckets,
) -> Iterator[DatasetPlan]:
    """Yield the plan of a request; its source is closed when the block ends."""
    dataset_plan = make_plan(request, report, open_bucket)
    try:
        yield dataset_plan
    finally:
        dataset_plan.source.close()


def _source(request: UploadRequest, open_bucket: OpenBucket) -> Path | Tree:
    if not request.is_in_bucket:
        return Path(request.source)
    bucket, name = split_gs(request.source)
    return object_tree(open_bucket(bucket), name)


_FIRST_PART = 1 << 18
"""Bytes fetched at a time for a few examples."""
MOST_BYTES, MOST_VALUES = 1 << 28, 1 << 24
"""Size and values of the examples that are held at once."""


@dataclass(frozen=True)
class Example:
    """One example, decoded."""

    split: str
    values: dict[str, Values]


def head(bucket: Bucket, manifest: Manifest, *, split: str, count: int) -> list[Example]:
    """Return the first examples of a split (of the first one, where it is empty); raises UsageError."""
    name = split or next(iter(manifest.splits))
    if name not in manifest.splits:
        raise UsageError(
            f"The dataset '{manifest.name}' has no split '{name}'.",
            hint=f"One of {', '.join(manifest.splits)}.",
        )
    examples: list[Example] = []
    held = values = 0
    for entry in manifest.splits[name].shards:
        shard = bucket.stat(manifest.ref.folder + entry.file)
        if shard is None:
            raise NotFoundError(f"{entry.file} is missing.", hint="See: tpuctl data verify " + manifest.name)
        records = read_records(bucket.stream(shard, _FIRST_PART), shard.size)
        for record in islice(records, count - len(examples)):
            held += len(record)
            examples.append(Example(name, decode(record)))
            values += sum(len(items) for items in examples[-1].values.values())
            if held > MOST_BYTES or values > MOST_VALUES:
                raise _too_large(manifest.name, len(examples))
        if len(examples) == count:
            break
    return examples


def _too_large(dataset: str, count: int) -> UsageError:
    fewer = f"Show fewer: tpuctl data head {dataset} -n {count - 1}" if count > 1 else ""
    number = f"{count} examples of the dataset '{dataset}' have" if count > 1 else "The first example has"
    return UsageError(
        f"{number} more than {MOST_BYTES / 1e6:.0f} MB or {MOST_VALUES} values: too much to show.",
        hint=fewer or "Read it with TensorFlow: tf.data.TFRecordDataset.",
    )


def read_vocabulary(bucket: Bucket, manifest: Manifest) -> Vocabulary | None:
    """Return the vocabulary of a dataset whose text became token ids, None for others."""
    tokens = manifest.source.options.tokens if manifest.source.options else None
    if tokens is None:
        return None
    return parse_vocabulary(bucket.read(manifest.ref.folder + VOCABULARY), tokens.kind, Path(VOCABULARY))


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


def traffic_warning(cloud: Cloud, request: UploadRequest, size: str) -> str:
    """Return the sentence about a source in another location than the bucket of datasets; empty for none.

    `size` is that of the dataset, for people. Without permission to look at a bucket, nothing is known.
    """
    if not request.is_in_bucket or not cloud.config.get("bucket"):
        return ""
    source = split_gs(request.source)[0]
    try:
        target = cloud.data_bucket.location()
        return "" if source == target.bucket else cloud.bucket_location(source).traffic(target, size)
    except TpuctlError:
        return ""
