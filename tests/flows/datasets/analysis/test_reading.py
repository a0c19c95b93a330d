"""Records of a dataset, read in their order: each once, and no shard with more or fewer than was uploaded."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import cast

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.data.output.manifest import Manifest, ShardEntry, SplitEntry
from tpuctl.data.tfrecord.framing import frame
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.datasets import analysis
from tpuctl.flows.datasets.analysis import in_parallel, split_records


def manifest(*counts: int) -> Manifest:
    """Return that of a split whose shards have so many records."""
    shards = tuple(ShardEntry(f"s{number}", count, 100, "AAAAAA==") for number, count in enumerate(counts))
    splits = {"train": SplitEntry(sum(counts), 100, shards), "test": SplitEntry(0, 0, ())}
    return msgspec.structs.replace(MANIFEST, splits=splits)


@pytest.fixture
def memory() -> MemoryBucket:
    """A bucket with two shards, of two records and of one."""
    bucket = MemoryBucket()
    bucket.put("datasets/pets/1.0.0/s0", frame(b"a") + frame(b"b"))
    bucket.put("datasets/pets/1.0.0/s1", frame(b"c"))
    return bucket


def records(memory: MemoryBucket, manifest: Manifest, split: str = "train") -> list[bytes]:
    return list(split_records(cast("Bucket", memory), manifest, split))


def test_records_come_shard_by_shard(memory: MemoryBucket) -> None:
    assert records(memory, manifest(2, 1)) == [b"a", b"b", b"c"]
    assert records(memory, manifest(2, 1), "test") == []


@pytest.mark.parametrize(("count", "words"), [(1, "1"), (3, "3")])
def test_a_shard_with_another_number_of_records_is_an_error(
    memory: MemoryBucket, count: int, words: str
) -> None:
    with pytest.raises(StateError) as caught:
        records(memory, manifest(count))
    assert caught.value.message == f"s0 has 2 records, and its manifest says {words}."
    assert caught.value.hint == "See: tpuctl data verify pets/1.0.0"


def test_a_missing_shard_is_an_error(memory: MemoryBucket) -> None:
    with pytest.raises(NotFoundError) as caught:
        records(memory, manifest(2, 1, 1))
    assert caught.value.message == "s2 is missing."
    assert caught.value.hint == "See: tpuctl data verify pets/1.0.0"


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 600])
def test_each_record_is_worked_on_once_and_results_come_in_order(count: int) -> None:
    data = [b"%d" % number for number in range(count)]
    assert list(in_parallel(int, iter(data))) == list(range(count))


@pytest.mark.parametrize(
    ("limit", "value", "size", "held"),
    [("_BATCH", 3, 1, 3), ("_BATCH_BYTES", 8, 4, 2), ("_BATCH_BYTES", 9, 4, 3)],
)
def test_no_more_is_held_than_memory_should(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, size: int, held: int
) -> None:
    monkeypatch.setattr(analysis, limit, value)
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * size

    results = cast("Generator[int]", in_parallel(len, endless()))
    assert next(results) == size
    assert taken == held
    results.close()


def test_a_large_shard_is_read_in_parts(memory: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.put("datasets/pets/1.0.0/s0", frame(bytes(5 << 20)))
    sizes, read = list[int](), memory.read_range

    def note(item: Object, start: int, end: int) -> bytes:
        sizes.append(end - start)
        return read(item, start, end)

    monkeypatch.setattr(memory, "read_range", note)
    assert [len(record) for record in records(memory, manifest(1))] == [5 << 20]
    assert max(sizes) == 4 << 20


def test_large_records_are_held_a_few_at_a_time() -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield large

    large = bytes(4 << 20)
    results = cast("Generator[int]", in_parallel(len, endless()))
    next(results)
    assert taken == 4
    results.close()


def test_two_records_are_worked_on_at_once() -> None:
    meeting = threading.Barrier(2)

    def meet(record: bytes) -> str:
        meeting.wait(60)
        return threading.current_thread().name

    assert sorted(in_parallel(meet, iter([b"a", b"b"]))) == ["record_0", "record_1"]
