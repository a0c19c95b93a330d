"""Records of a dataset read in order, what `data stats` says of them, and in what two datasets differ."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.data.source_trees import write_image
from tests.flows.datasets.pets import send
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.data.output.manifest import Manifest, ShardEntry, SplitEntry
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Label, Text
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.datasets import analysis
from tpuctl.flows.datasets.analysis import (
    DatasetDiff,
    DatasetStats,
    Difference,
    diff,
    in_parallel,
    split_records,
)


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


@pytest.mark.parametrize(("sample", "told"), [(None, [1, 2, 3, 4, 5]), (2, [1, 2, 3, 4])])
def test_each_record_that_is_read_counts_once(
    monkeypatch: pytest.MonkeyPatch, sample: int | None, told: list[int]
) -> None:
    splits = {"train": SplitEntry(3, 100, ()), "test": SplitEntry(2, 100, ())}
    manifest = msgspec.structs.replace(MANIFEST, splits=splits, features={})
    monkeypatch.setattr(analysis, "split_records", lambda _, __, split: iter([b""] * splits[split].records))
    reports: list[tuple[int, int]] = []
    bucket = cast("Bucket", MemoryBucket())
    analysis.stats(bucket, manifest, lambda *numbers: reports.append(numbers), sample=sample)
    assert reports == [(done, len(told)) for done in told]


ROWS = {"train": [(0, "aa"), (1, "b"), (1, ""), (5, "c"), (-1, "d")], "test": [(0, "aa")]}
"""Class and text of each record."""


@pytest.fixture(params=["by columns", "one by one"])
def result(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DatasetStats:
    """The figures of a bucket in memory."""
    if request.param == "one by one":
        monkeypatch.setattr(analysis, "has_columns", lambda _: False)
    bucket, entries = MemoryBucket(), {}
    for split, rows in ROWS.items():
        records = [encode({"label": label, "text": text.encode()}) for label, text in rows]
        bucket.put(f"datasets/pets/1.0.0/{split}", b"".join(map(frame, records)))
        shard = ShardEntry(split, len(rows), 100, "AAAAAA==")
        entries[split] = SplitEntry(len(rows), 10 * len(rows), (shard,))
    features = {"label": Label(("cat", "dog", "fox")), "text": Text()}
    manifest = msgspec.structs.replace(MANIFEST, splits=entries, features=features)
    return analysis.stats(cast("Bucket", bucket), manifest, lambda *_: None)


def test_classes_are_counted_by_their_names_and_others_by_their_numbers(result: DatasetStats) -> None:
    train, test = result.splits
    assert train.classes == {"label": {"cat": 1, "dog": 2, "fox": 0, "5": 1, "-1": 1}}
    assert test.classes == {"label": {"cat": 1, "dog": 0, "fox": 0}}


def test_a_split_has_its_size_and_the_lengths_of_its_texts(result: DatasetStats) -> None:
    train, test = result.splits
    assert (train.name, train.records, train.read, train.bytes) == ("train", 5, 5, 50)
    assert (test.name, test.records, test.read, test.bytes) == ("test", 1, 1, 10)
    lengths = train.numbers["text"]
    assert (lengths.count, lengths.mean, lengths.least, lengths.most) == (5, 1.0, 0.0, 2.0)
    assert train.pictures == {}


def test_a_record_that_is_in_two_splits_is_a_leak(result: DatasetStats) -> None:
    assert result.duplicates.leaks == {("train", "test"): 1}
    assert result.duplicates.examples == ((("train", 0), ("test", 0)),)


@pytest.mark.parametrize(("read", "is_sample"), [((5, 1), False), ((4, 1), True), ((5, 0), True)])
def test_figures_are_of_a_sample_where_any_split_was_read_in_part(
    result: DatasetStats, read: tuple[int, int], is_sample: bool
) -> None:
    splits = tuple(replace(split, read=count) for split, count in zip(result.splits, read, strict=True))
    assert replace(result, splits=splits).is_sample == is_sample
    assert result.ref == DatasetRef("pets", "1.0.0")


def test_of_sizes_of_pictures_the_three_most_frequent_are_named(pictures: Path, bucket: Bucket) -> None:
    widths_and_heights = [(4, 5)] * 4 + [(5, 4)] * 3 + [(6, 6)] * 2 + [(7, 7)]
    for number, size in enumerate(widths_and_heights):
        write_image(pictures.parent / "sizes" / "cat" / f"{number}.png", size=size, shade=number)
    manifest = send(bucket, plan(pictures.parent / "sizes", name="pets", shards=1)).manifest
    (split,) = analysis.stats(bucket, manifest, lambda *_: None).splits
    figures = split.pictures["image"]
    assert figures.sizes == ((5, 4, 4), (4, 5, 3), (6, 6, 2))
    assert (figures.height.most, figures.width.least, figures.broken) == (7, 4, 0)


def made(version: str = "1.0.0", splits: dict[str, int] | None = None, **changes: Any) -> Manifest:
    """Return a manifest whose splits have so many records, and no shards."""
    counts = {"train": 2} if splits is None else splits
    entries = {name: SplitEntry(records, 100, ()) for name, records in counts.items()}
    return msgspec.structs.replace(MANIFEST, version=version, splits=entries, **changes)


def compared(a: Manifest, b: Manifest) -> DatasetDiff:
    bucket = cast("Bucket", MemoryBucket())
    return diff(bucket, a, b, lambda done, total: None)


def facts(a: Manifest, b: Manifest) -> list[tuple[str, str | None, str | None]]:
    return [(fact.name, fact.a, fact.b) for fact in compared(a, b).facts]


def test_the_same_dataset_has_no_difference() -> None:
    result = compared(made(), made("2.0.0"))
    assert (result.facts, result.is_empty) == ((), True)
    assert (result.a.version, result.b.version) == ("1.0.0", "2.0.0")


def test_features_that_only_one_has_or_that_differ() -> None:
    first = made(features={"image": Text(), "label": Label(("cat",)), "same": Text()})
    second = made(features={"label": Label(("cat", "dog")), "same": Text(), "new": Text()})
    assert facts(first, second) == [
        ("feature image", "text", None),
        ("feature label", "label, 1 class: cat", "label, 2 classes: cat, dog"),
        ("feature new", None, "text"),
    ]
    assert not compared(first, second).is_empty


def test_features_that_the_same_words_describe_are_told_apart() -> None:
    first, second = Label(tuple("abcdefg")), Label(tuple("abcdefh"))
    facts_of_both = facts(made(features={"label": first}), made(features={"label": second}))
    assert facts_of_both[0] == ("feature label", str(first), str(second))


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (("cat",), ("dog",), ("1 class, with cat", "1 class, with dog")),
        (("cat", "dog"), ("dog", "cat"), ("2 classes", "2 classes")),
        (tuple("abcde"), (), ("5 classes, with a, b, c, d, e", "0 classes")),
        (tuple("abcdef"), ("f",), ("6 classes, with a, b, c, d, e", "1 class")),
        (tuple("abcdefg"), ("g",), ("7 classes, with a, b, c, d, e, ...", "1 class")),
    ],
)
def test_classes_are_counted_and_five_that_the_other_lacks_are_named(
    a: tuple[str, ...], b: tuple[str, ...], words: tuple[str, str]
) -> None:
    assert facts(made(classes=a), made(classes=b)) == [("classes", *words)]


def test_splits_are_compared_by_their_records() -> None:
    first = made(splits={"train": 2, "test": 1, "same": 0})
    second = made(splits={"train": 3, "same": 0, "validation": 0})
    assert facts(first, second) == [
        ("split train", "2 records", "3 records"),
        ("split test", "1 record", None),
        ("split validation", None, "0 records"),
    ]


def test_a_shard_that_is_missing_is_named() -> None:
    shard = SplitEntry(2, 100, (ShardEntry("pets-train.tfrecord-00000-of-00001", 2, 100, "AAAAAA=="),))
    broken = msgspec.structs.replace(made(), splits={"train": shard})
    with pytest.raises(NotFoundError, match=r"pets-train\.tfrecord-00000-of-00001 is missing"):
        compared(made(), broken)


def test_any_difference_of_records_counts() -> None:
    result = compared(made(), made())
    for count in ("only_a", "only_b", "moved", "changed"):
        records = replace(result.records, **{count: 1})
        assert not DatasetDiff(result.a, result.b, (), records).is_empty
    fact = Difference("classes", "1 class", "2 classes")
    assert not DatasetDiff(result.a, result.b, (fact,), result.records).is_empty


def test_very_many_classes_are_compared_by_one_set() -> None:
    """With a set for each of them this would take hours."""
    first, second = (tuple(f"{letter}{number}" for number in range(200_000)) for letter in "ab")
    ((_, a, _),) = facts(made(classes=first), made(classes=second))
    assert a == "200000 classes, with a0, a1, a2, a3, a4, ..."
