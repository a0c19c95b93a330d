"""In what two datasets differ, by their manifests and their records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import Manifest, ShardEntry, SplitEntry
from tpuctl.data.schema.features import Label, Text
from tpuctl.errors import NotFoundError
from tpuctl.flows.datasets.analysis import DatasetDiff, Difference, diff


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
