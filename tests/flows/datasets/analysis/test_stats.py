"""What `data stats` says while it reads, and its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.data.source_trees import write_image
from tests.flows.datasets.pets import send
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import ShardEntry, SplitEntry
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Label, Text
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets import analysis
from tpuctl.flows.datasets.analysis import DatasetStats


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
