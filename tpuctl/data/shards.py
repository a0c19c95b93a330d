"""Shards: how many, which records in which, and each as a stream of framed bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

import google_crc32c

from tpuctl.data.manifest import ShardEntry, checksum_text
from tpuctl.data.source import Record, Source, checked_read
from tpuctl.data.tfrecord import OVERHEAD, frame
from tpuctl.errors import UsageError

MIN_SIZE = 64 << 20
MAX_SIZE = 1 << 30
"""TFDS's bounds for the size of a shard, in bytes (tensorflow_datasets/core/utils/shard_utils.py)."""
DEFAULT_SIZE = 100_000_000
"""TensorFlow's guide on input pipelines: files of about 100 MB."""

Chunks = Iterator[bytes]

_CHUNK = 1 << 20
_UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


@dataclass(frozen=True)
class ShardCount:
    """How many shards a split gets, and the reason in words for the user."""

    count: int
    why: str


@dataclass
class Shard:
    """One TFRecord file to be: `chunks` makes its bytes, `entry` is known after the last of them."""

    file: str
    """Object name below the dataset's folder."""
    split: str
    source: Source
    members: Sequence[Record]
    _entry: ShardEntry | None = field(default=None, repr=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.members)

    @property
    def bytes(self) -> int:
        """Size of the file, known beforehand."""
        return framed_size(self.members)

    @property
    def entry(self) -> ShardEntry:
        """What the manifest says of this shard; raises ValueError before `chunks` has come to its end."""
        if self._entry is None:
            raise ValueError(f"{self.file} has not been produced to its end")
        return self._entry

    def chunks(self) -> Chunks:
        """Yield the file in pieces of about 1 MiB; called again, it starts again.

        Raises UsageError that names the record if the source is not what it was when it was planned.
        """
        self._entry = None
        crc, size = 0, 0
        for chunk in _joined(frame(checked_read(self.source, record)) for record in self.members):
            crc, size = google_crc32c.extend(crc, chunk), size + len(chunk)
            yield chunk
        self._entry = ShardEntry(self.file, self.records, size, checksum_text(crc))


def shard_file(name: str, split: str, index: int, count: int) -> str:
    """Return the file name that TFDS gives a shard."""
    return f"{name}-{split}.tfrecord-{index:05d}-of-{count:05d}"


def framed_size(records: Sequence[Record]) -> int:
    """Return the bytes that the records take in TFRecord files."""
    return sum(record.size for record in records) + OVERHEAD * len(records)


def choose_count(records: int, size: int, *, hosts: int, target: int = DEFAULT_SIZE) -> ShardCount:
    """Return the number of shards for `records` of `size` bytes in all that `hosts` hosts will read.

    A multiple of the hosts, near `target` bytes a shard, within TFDS's bounds where that leaves a choice, and
    never more than there are records.
    """
    each = max(_within_bounds(round(size / (target * hosts)), size, hosts), 1)
    count = each * hosts
    if count <= records:
        return ShardCount(count, _why(count, size, hosts, target))
    if records < hosts:
        return ShardCount(records, f"one record each; some of the {hosts} hosts will read nothing")
    return ShardCount(records // hosts * hosts, f"at most the {records} records, and the same for each host")


def fixed_count(shards: int, records: int, *, hosts: int, split: str) -> ShardCount:
    """Return the number of shards the user has asked for; raises UsageError where that cannot be."""
    if shards < 1:
        raise UsageError(f"{shards} shards cannot be.", hint="Ask for one or more.", shards=shards)
    if shards % hosts:
        raise UsageError(
            f"{shards} shards cannot be shared evenly by {hosts} hosts.",
            hint=f"Ask for a multiple of {hosts}, such as {ceil(shards / hosts) * hosts}.",
            shards=shards,
            hosts=hosts,
        )
    if shards > records:
        raise UsageError(
            f"The split '{split}' has {records} records, fewer than {shards} shards.",
            hint="Ask for fewer shards, or leave the number to tpuctl.",
            shards=shards,
            split=split,
        )
    return ShardCount(shards, "as asked for")


def deal(records: Sequence[Record], count: int) -> list[Sequence[Record]]:
    """Return `count` runs of the records whose lengths differ by one at most."""
    bounds = [len(records) * index // count for index in range(count + 1)]
    return [records[start:end] for start, end in pairwise(bounds)]


def _joined(frames: Chunks) -> Chunks:
    waiting = bytearray()
    for one in frames:
        waiting += one
        if len(waiting) >= _CHUNK:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def _within_bounds(each: int, size: int, hosts: int) -> int:
    """Bring the shards a host within the bounds; the upper bound on a shard's size goes first."""
    fewest, most = ceil(size / (MAX_SIZE * hosts)), size // (MIN_SIZE * hosts)
    return max(min(each, most), fewest)


def _why(count: int, size: int, hosts: int, target: int) -> str:
    each = f"{_readable(size / count)} each"
    if count == 1:
        return f"{_readable(size)} in one file"
    if count == hosts:
        return f"one for each of the {hosts} hosts, {each}"
    shared = f", a multiple of the {hosts} hosts" if hosts > 1 else ""
    return f"{each}, near the {_readable(target)} wanted{shared}"


def _readable(size: float) -> str:
    unit = next((unit for unit in _UNITS if size < 1000 * _UNITS[unit]), "GB")
    return f"{size / _UNITS[unit]:.3g} {unit}"
