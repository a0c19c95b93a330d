"""Defines a shard, streams the bytes of its TFRecord file, and records the result of writing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import msgspec

from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.order.splits import Members
from tpuctl.data.output.manifest import MOST_BAD, ShardEntry
from tpuctl.data.source import Indices, Observations, Source
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import OVERHEAD, frame_parts
from tpuctl.object_content import ContentDigest

ReportShard = Callable[[int, int], None]
"""Called for each piece of a shard, with the records read since the last call and the bytes of the piece."""

_CHUNK = 1 << 20
_LARGE = 1 << 15
"""Bytes of a record that is passed on as it is: joining it with others would copy it once more."""
_BATCH = 1 << 14
"""Records whose indices are computed at once."""


class ShardResult(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"observed": "seen"}  # as in buckets
):  # fmt: skip
    """The result of writing one shard; the manifest is made from the results of all shards."""

    entry: ShardEntry
    identity: str
    skipped: int = 0
    bad: tuple[BadRecord, ...] = ()
    """The bad records that were skipped, the first `MOST_BAD` of them."""
    observed: dict[str, list[int | str]] = {}
    """`Observations.values`."""


@dataclass(frozen=True)
class Shard:
    """One TFRecord file to be written: records `start` to before `stop` of a split."""

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
        for chunk, records, bad in self._pieces():
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
        self._result = ShardResult(entry, shard.identity, skipped, tuple(listed), self._observations.values)
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

    def _framed(self, frames: Frames) -> Iterator[tuple[bytes, int, list[BadRecord]]]:
        for piece, records in frames.pieces(_CHUNK):
            self._records += records
            yield piece, records, []
