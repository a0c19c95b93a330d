"""Reads the records of a dataset in the bucket in their order, and works on some of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tpuctl.data.output.manifest import Manifest
from tpuctl.data.tfrecord.framing import Frames, read_frames
from tpuctl.errors import NotFoundError, StateError

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

ReportRecords = Callable[[int, int], None]
"""Takes the records read so far and their number."""
Out = TypeVar("Out")

_PART = 4 << 20
_WIDTH = 2
"""Records worked on at once: decoders of pictures leave Python's lock."""
_BATCH, _BATCH_BYTES = 256, 16 << 20
"""Records that are held, and their bytes."""


def split_records(bucket: Bucket, manifest: Manifest, split: str) -> Iterator[bytes]:
    """Yield every record of a split; raises NotFoundError, StateError where a shard is not as uploaded."""
    for data, bounds in split_frames(bucket, manifest, split):
        for begin, end in bounds.tolist():
            yield data[begin:end]


def split_frames(bucket: Bucket, manifest: Manifest, split: str) -> Iterator[Frames]:
    """Yield the same many at a time, as `read_frames`."""
    hint = f"See: tpuctl data verify {manifest.ref}"
    for entry in manifest.splits[split].shards:
        shard = bucket.stat(manifest.ref.folder + entry.file)
        if shard is None:
            raise NotFoundError(f"{entry.file} is missing.", hint=hint)
        count = 0
        for frames in read_frames(bucket.stream(shard, _PART), shard.size, _PART):
            yield frames
            count += len(frames[1])
        if count != entry.records:
            difference = f"has {count} records, and its manifest says {entry.records}"
            raise StateError(f"{entry.file} {difference}.", hint=hint)


def in_parallel(work: Callable[[bytes], Out], records: Iterator[bytes]) -> Iterator[Out]:
    """Yield the result of each record in turn."""
    with ThreadPoolExecutor(_WIDTH, thread_name_prefix="record") as pool:
        for batch in _batches(records):
            yield from pool.map(work, batch)


def _batches(records: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch
