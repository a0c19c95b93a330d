"""Defines a shard, streams the bytes of its TFRecord file, and records the result of writing it.

- Chooses the number of shards of a split by size and hosts, and checks a number that the user gives.
- Verifies a shard: framing, checksums, and the size in the manifest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from math import ceil
from types import ModuleType
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.order import Members
from tpuctl.data.output.manifest import MOST_BAD, SUFFIXES, FileFormat, ShardEntry
from tpuctl.data.source import Indices, Observations, Source
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import LONGEST, OVERHEAD, Readable, frame_parts, read_frames, read_records
from tpuctl.errors import ConfigError, StateError, UsageError
from tpuctl.object_content import ContentDigest

MIN_SIZE = 64 << 20
MAX_SIZE = 1 << 30
"""TFDS's bounds for the size of a shard, in bytes (tensorflow_datasets/core/utils/shard_utils.py)."""
DEFAULT_SIZE = 100_000_000
"""TensorFlow's guide on input pipelines: files of about 100 MB."""
_UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


@dataclass(frozen=True)
class ShardCount:
    """How many shards a split gets, and the reason in words for the user."""

    count: int
    why: str


def shard_file(name: str, split: str, index: int, count: int, file_format: FileFormat = "tfrecord") -> str:
    """Return the file name that TFDS gives a shard."""
    return f"{name}-{split}.{SUFFIXES[file_format]}-{index:05d}-of-{count:05d}"


def framed_size(members: Members) -> int:
    """Return the size in bytes of the TFRecord files that hold all records of a split."""
    return members.size + OVERHEAD * len(members)


def choose_count(records: int, size: int, *, hosts: int, target: int = DEFAULT_SIZE) -> ShardCount:
    """Return the number of shards for `records` of `size` bytes in all that `hosts` hosts will read.

    A multiple of the hosts, near `target` bytes a shard, within TFDS's bounds where that leaves a choice, and
    never more than there are records.
    """
    count = hosts * max(_within_bounds(round(size / (target * hosts)), size, hosts), 1)
    if count <= records:
        return ShardCount(count, _why(count, size, hosts, target))
    if records < hosts:
        return ShardCount(records, f"one record each; some of the {hosts} hosts will read nothing")
    return ShardCount(records // hosts * hosts, f"at most the {records} records, and the same for each host")


def fixed_count(shards: int, records: int, *, hosts: int, split: str) -> ShardCount:
    """Return the number of shards that the user gave; raises UsageError for one that is impossible."""
    if shards < 1:
        raise UsageError(f"A split cannot have {shards} shards.", hint="Give one or more.", shards=shards)
    if shards % hosts:
        raise UsageError(
            f"{shards} shards cannot be shared evenly by {hosts} hosts.",
            hint=f"Give a multiple of {hosts}, such as {ceil(shards / hosts) * hosts}.",
            shards=shards,
            hosts=hosts,
        )
    if shards > records:
        raise UsageError(
            f"The split '{split}' has {records} records, fewer than {shards} shards.",
            hint="Give fewer shards, or run it without --shards.",
            shards=shards,
            split=split,
        )
    return ShardCount(shards, "as requested")


def bounds(records: int, count: int) -> list[int]:
    """Return where each of `count` shards begins, and the end: lengths differ by one record at most."""
    return [records * index // count for index in range(count + 1)]


def _within_bounds(shards_per_host: int, size: int, hosts: int) -> int:
    """Bring the shards of each host within the bounds; the upper bound on a shard's size goes first."""
    fewest, most = ceil(size / (MAX_SIZE * hosts)), size // (MIN_SIZE * hosts)
    return max(min(shards_per_host, most), fewest)


def _why(count: int, size: int, hosts: int, target: int) -> str:
    shard_size = f"{readable_size(size / count)} each"
    if count == 1:
        return f"{readable_size(size)} in one file"
    if count == hosts:
        return f"one for each of the {hosts} hosts, {shard_size}"
    shared = f", a multiple of the {hosts} hosts" if hosts > 1 else ""
    return f"{shard_size}, near the target of {readable_size(target)}{shared}"


def readable_size(size: float) -> str:
    """Return a size in bytes with three digits and its unit: `67.1 MB` (powers of ten)."""
    unit = next((unit for unit in _UNITS if size < 1000 * _UNITS[unit]), "GB")
    return f"{size / _UNITS[unit]:.3g} {unit}"


ReportShard = Callable[[int, int], None]
"""Called for each piece of a shard, with the records read since the last call and the bytes of the piece."""

_CHUNK = 1 << 20
_LARGE = 1 << 15
"""Bytes of a record that is passed on as it is: joining it with others would copy it once more."""
_BATCH = 1 << 14
"""Records whose indices are computed at once."""


class ShardResult(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"observed": "seen"},  # as in buckets
):
    """The result of writing one shard; the manifest is made from the results of all shards."""

    entry: ShardEntry
    identity: str
    skipped: int = 0
    bad: tuple[BadRecord, ...] = ()
    """The bad records that were skipped, the first `MOST_BAD` of them."""
    observed: dict[str, list[int | str]] = {}
    """`Observations.values`."""
    examples: int | None = None
    """Bytes of the records without what the format adds; None for TFRecord, where the file's size tells."""

    @property
    def bytes_of_records(self) -> int:
        """Bytes of the records without what the format adds, as TFDS counts them."""
        if self.examples is not None:
            return self.examples
        return self.entry.bytes - OVERHEAD * self.entry.records


@dataclass(frozen=True)
class Shard:
    """One file to be written: records `start` to before `stop` of a split."""

    file: str
    """Object name below the dataset's folder."""
    split: str
    source: Source
    members: Members
    start: int
    stop: int
    plan: str
    """Identity of all else that decides on the bytes: options, seed, features."""
    file_format: FileFormat = "tfrecord"

    @property
    def records(self) -> int:
        """Number of records, the bad ones counted too."""
        return self.stop - self.start

    def indices(self) -> Iterator[Indices]:
        """Yield the indices of the records in the order they are written, some thousands at a time."""
        for start in range(self.start, self.stop, _BATCH):
            yield self.members.indices(start, min(start + _BATCH, self.stop))

    @cached_property
    def identity(self) -> str:
        """A SHA-256 that is the same only for the same bytes: of the plan and the records' stamps."""
        digest = sha256(f"{self.plan}\n{self.file}\n".encode())
        for indices in self.indices():
            digest.update(indices.tobytes())
            digest.update(self.source.stamp(indices))
        return digest.hexdigest()

    def stream(
        self, *, skip_bad: bool = False, report: ReportShard = lambda records, size: None
    ) -> ShardStream:
        """Return a stream of the file's bytes; every call returns a new one, of the same bytes."""
        return ShardStream(self, skip_bad, report)


class ShardStream:
    """The bytes of a shard's file: iterated once, in pieces of about 1 MiB, or a large record alone.

    The iterator raises BadRecordsError at the first bad record unless they are skipped, UsageError that names
    the file if the source has changed since the plan, and what `report` raises.
    """

    def __init__(self, shard: Shard, skip_bad: bool, report: ReportShard) -> None:
        self._shard = shard
        self._skip_bad = skip_bad
        self._report = report
        self._records = 0
        self._examples: int | None = None
        self._observations = Observations()
        self._result: ShardResult | None = None
        self._chunks = self._read()

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    @property
    def result(self) -> ShardResult:
        """The result; raises ValueError before the stream was read to its end."""
        if self._result is None:
            raise ValueError(f"{self._shard.file} was not read to its end")
        return self._result

    def drain(self) -> ShardResult:
        """Read the rest of the stream, and return the result."""
        for _ in self._chunks:
            pass
        return self.result

    def _read(self) -> Iterator[bytes]:
        digest, written, skipped, reported = ContentDigest(), 0, 0, 0
        listed: list[BadRecord] = []
        pieces = self._pieces if self._shard.file_format == "tfrecord" else self._pieces_of_array_record
        for chunk, records, bad in pieces():
            if bad and not self._skip_bad:
                raise BadRecordsError(bad)
            skipped += len(bad)
            listed += bad[: MOST_BAD - len(listed)]
            written += records
            digest.update(chunk)
            self._report(self._records - reported, len(chunk))
            reported = self._records
            yield chunk
        shard, content = self._shard, digest.content()
        entry = ShardEntry(shard.file, written, content.size, content.crc32c)
        self._result = ShardResult(
            entry, shard.identity, skipped, tuple(listed), self._observations.values, self._examples
        )
        self._report(self._records - reported, 0)

    def _pieces(self) -> Iterator[tuple[bytes, int, list[BadRecord]]]:
        """Yield pieces of about `_CHUNK` bytes at most, each with its number of records and its bad ones."""
        parts: list[bytes] = []
        size, records = 0, 0
        bad: list[BadRecord] = []
        for indices in self._shard.indices():
            for record in self._shard.source.blocks(indices, self._observations):
                if isinstance(record, Frames):
                    if parts or bad:
                        yield b"".join(parts), records, bad
                    parts, size, records, bad = [], 0, 0, []
                    yield from self._framed(record)
                    continue
                self._records += 1
                if isinstance(record, BadRecord):
                    bad.append(record)
                    if not self._skip_bad:
                        break
                    continue
                records += 1
                size += len(record) + OVERHEAD
                if size < _CHUNK and len(record) < _LARGE:
                    parts += frame_parts(record)
                    continue
                head, _, foot = frame_parts(record)
                yield b"".join((*parts, head)), records, bad
                yield record, 0, []
                parts, size, records, bad = [foot], 0, 0, []
        if parts or bad:
            yield b"".join(parts), records, bad

    def _pieces_of_array_record(self) -> Iterator[tuple[bytes, int, list[BadRecord]]]:
        """Yield nothing but counts until the whole file is written: its library writes files only."""
        library, self._examples = array_record(), 0
        with _temporary_file() as (file, path):
            with _disk_errors():
                writer = library.ArrayRecordWriter(path, _ARRAY_RECORD)
            for indices in self._shard.indices():
                records, bad = 0, list[BadRecord]()
                for record in self._unframed(indices):
                    self._records += 1
                    if isinstance(record, BadRecord):
                        bad.append(record)
                        if not self._skip_bad:
                            break
                        continue
                    with _disk_errors():
                        writer.write(record)
                    records += 1
                    self._examples += len(record)
                yield b"", records, bad
            with _disk_errors():
                writer.close()
            while piece := file.read(_CHUNK):
                yield piece, 0, []

    def _unframed(self, indices: Indices) -> Iterator[bytes | BadRecord]:
        for record in self._shard.source.blocks(indices, self._observations):
            if isinstance(record, Frames):
                yield from record.records()
            else:
                yield record

    def _framed(self, frames: Frames) -> Iterator[tuple[bytes, int, list[BadRecord]]]:
        for piece, records in frames.pieces(_CHUNK):
            self._records += records
            yield piece, records, []


_ARRAY_RECORD = "group_size:1"
"""Each record for itself, as random access wants it, compressed by Zstandard: what TFDS writes."""


def array_record() -> ModuleType:
    """Return the library that writes and reads ArrayRecord; raises ConfigError where it is not installed."""
    try:
        from array_record.python import array_record_module  # noqa: PLC0415  only for ArrayRecord
    except ImportError as error:
        raise ConfigError(
            "ArrayRecord needs array_record, which is not installed.",
            hint="Install it, on Linux or macOS: pip install array-record.",
        ) from error
    module: ModuleType = array_record_module
    return module


def writer_version(file_format: FileFormat) -> tuple[str, ...]:
    """Return what decides on the bytes of a shard besides its records; nothing for TFRecord."""
    if file_format == "tfrecord":
        return ()
    array_record()
    return (file_format, _ARRAY_RECORD, version("array-record"))


def shard_records(stream: Readable, file_format: FileFormat, size: int = LONGEST) -> Iterator[bytes]:
    """Yield the records of a shard of at most `size` bytes; raises UsageError for damage.

    An ArrayRecord is copied to a temporary file first, as a whole: it is read from its end.
    """
    return read_records(stream, size) if file_format == "tfrecord" else _array_records(stream)


def shard_frames(
    stream: Readable, file_format: FileFormat, size: int, part: int
) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
    """Yield the same many at a time, about `part` bytes, each with where its records begin and end."""
    return (
        read_frames(stream, size, part)
        if file_format == "tfrecord"
        else _joined(_array_records(stream), part)
    )


def _joined(records: Iterator[bytes], part: int) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
    batch: list[bytes] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record)
        if size >= part:
            yield _with_bounds(batch)
            batch, size = [], 0
    if batch:
        yield _with_bounds(batch)


def _with_bounds(batch: list[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    bounds = np.cumsum([0, *map(len, batch)], dtype=np.int64)
    return b"".join(batch), np.stack((bounds[:-1], bounds[1:]), axis=1)


def _array_records(stream: Readable) -> Iterator[bytes]:
    library = array_record()
    with _temporary_file() as (file, path):
        while block := stream.read(_CHUNK):
            with _disk_errors():
                file.write(block)
        try:
            reader = library.ArrayRecordReader(path)
            count = reader.num_records()
            for number in range(count):  # of many at once all are held, and each may unpack to very much
                yield from reader.read(number, number + 1)
            reader.close()
        except (RuntimeError, ValueError, IndexError) as error:
            why = str(error).splitlines()[0].rstrip(".")
            raise UsageError(f"It is not an ArrayRecord, or a damaged one: {why}.") from error


@contextmanager
def _temporary_file() -> Iterator[tuple[IO[bytes], str]]:
    """Yield a file, not buffered, and a path by which this process opens it.

    It has no other name: the system removes it when the process ends, however it ends.
    """
    with ExitStack() as stack:
        with _disk_errors():
            file = stack.enter_context(tempfile.TemporaryFile(prefix="tpuctl-", buffering=0))
        yield file, f"/dev/fd/{file.fileno()}"


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise StateError for what Python or the library says of the disk of temporary files."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        folder = tempfile.gettempdir()
        why = error.strerror if isinstance(error, OSError) else str(error).partition(";")[0]
        raise StateError(
            f"Cannot write a shard to '{folder}': {why}.",
            hint="Free some space, or name a larger disk: TMPDIR=/large tpuctl data ...",
            folder=folder,
        ) from error


def verify_shard(stream: Readable, entry: ShardEntry, file_format: FileFormat = "tfrecord") -> None:
    """Read a shard to its end; raises UsageError at the first damage or difference, with the file's name."""
    tally = _Tally(stream)
    try:
        records = sum(1 for _record in shard_records(tally, file_format))
    except UsageError as error:
        facts = {**error.facts, "file": entry.file}
        raise UsageError(f"{entry.file}: {error.message}", hint=error.hint, **facts) from error
    if records != entry.records:
        raise _differs(entry.file, "records", records, entry.records)
    if difference := tally.digest.content().difference(entry.content):
        raise _differs(entry.file, *difference)


def _differs(file: str, field: str, actual: object, expected: object) -> UsageError:
    return UsageError(
        f"{file} has {field} {actual}, and its manifest says {expected}.",
        hint="Upload the dataset again under a new version.",
        file=file,
    )


class _Tally:
    """A stream that computes size and checksum of the bytes read from it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.digest = ContentDigest()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data
