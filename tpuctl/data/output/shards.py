"""Shards: how many, which records in which, and each as a stream of framed bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import ceil

import msgspec

from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.order.splits import Members
from tpuctl.data.output.manifest import MOST_BAD, ShardEntry
from tpuctl.data.source import Indices, Observations, Source
from tpuctl.data.tfrecord.framing import OVERHEAD, frame_parts
from tpuctl.errors import UsageError
from tpuctl.objects import ContentDigest

MIN_SIZE = 64 << 20
MAX_SIZE = 1 << 30
"""TFDS's bounds for the size of a shard, in bytes (tensorflow_datasets/core/utils/shard_utils.py)."""
DEFAULT_SIZE = 100_000_000
"""TensorFlow's guide on input pipelines: files of about 100 MB."""

_CHUNK = 1 << 20
_LARGE = 1 << 15
"""Bytes of a record that is passed on as it is: joining it with others would copy it once more."""
_BATCH = 1 << 14
"""Records whose indices are worked out at once."""
_UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


@dataclass(frozen=True)
class ShardCount:
    """How many shards a split gets, and the reason in words for the user."""

    count: int
    why: str


class ShardResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one shard: all that the end of the conversion must know of it."""

    entry: ShardEntry
    identity: str
    skipped: int = 0
    bad: tuple[BadRecord, ...] = ()
    """The bad records left out, the first `MOST_BAD` of them."""
    seen: dict[str, list[int | str]] = {}


@dataclass(frozen=True)
class Shard:
    """One TFRecord file to be: records `start` to before `stop` of a split."""

    file: str
    """Object name below the dataset's folder."""
    split: str
    source: Source
    members: Members
    start: int
    stop: int
    plan: str
    """Identity of all else that decides on the bytes: options, seed, features."""

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

    def produce(self, *, skip_bad: bool = False) -> ShardStream:
        """Return a way to make the file once; may be asked for again, for the same bytes."""
        return ShardStream(self, skip_bad)


class ShardStream:
    """One making of a shard: its bytes from `chunks`, then its `note`."""

    def __init__(self, shard: Shard, skip_bad: bool) -> None:
        self._shard = shard
        self._skip_bad = skip_bad
        self._note: ShardResult | None = None
        self.records = 0
        """Records read so far, the bad ones counted too."""

    @property
    def note(self) -> ShardResult:
        """What came of it; raises ValueError before `chunks` has come to its end."""
        if self._note is None:
            raise ValueError(f"{self._shard.file} has not been produced to its end")
        return self._note

    def chunks(self) -> Iterator[bytes]:
        """Yield the file in pieces: of about 1 MiB, or a large record alone.

        Raises BadRecordsError at the first bad record unless they are skipped, and UsageError that names the
        file if the source is not what it was when it was planned.
        """
        digest, written, skipped = ContentDigest(), 0, 0
        bad: list[BadRecord] = []
        seen = Observations()
        for chunk, records, bad_ones in self._gathered(seen):
            if bad_ones and not self._skip_bad:
                raise BadRecordsError(bad_ones)
            skipped += len(bad_ones)
            bad += bad_ones[: MOST_BAD - len(bad)]
            written += records
            digest.update(chunk)
            yield chunk
        shard, content = self._shard, digest.content()
        entry = ShardEntry(shard.file, written, content.size, content.crc32c)
        self._note = ShardResult(entry, shard.identity, skipped, tuple(bad), seen.values)

    def _gathered(self, seen: Observations) -> Iterator[tuple[bytes, int, list[BadRecord]]]:
        """Yield pieces of about `_CHUNK` bytes at most, how many records end there and which were bad."""
        parts: list[bytes] = []
        size, records = 0, 0
        bad: list[BadRecord] = []
        for indices in self._shard.indices():
            for item in self._shard.source.read(indices, seen):
                self.records += 1
                if isinstance(item, BadRecord):
                    bad.append(item)
                    if not self._skip_bad:
                        break
                    continue
                records += 1
                size += len(item) + OVERHEAD
                if size < _CHUNK and len(item) < _LARGE:
                    parts += frame_parts(item)
                    continue
                head, _, foot = frame_parts(item)
                yield b"".join((*parts, head)), records, bad
                yield item, 0, []
                parts, size, records, bad = [foot], 0, 0, []
        if parts or bad:
            yield b"".join(parts), records, bad


def shard_file(name: str, split: str, index: int, count: int) -> str:
    """Return the file name that TFDS gives a shard."""
    return f"{name}-{split}.tfrecord-{index:05d}-of-{count:05d}"


def framed_size(members: Members) -> int:
    """Return the bytes that the records take in TFRecord files."""
    return members.size + OVERHEAD * len(members)


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


def bounds(records: int, count: int) -> list[int]:
    """Return where each of `count` shards begins, and the end: lengths differ by one record at most."""
    return [records * index // count for index in range(count + 1)]


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
