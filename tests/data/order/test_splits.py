from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tpuctl.data.order import parse_splits, split_records
from tpuctl.data.source import Part, Source
from tpuctl.errors import UsageError

EIGHTY_TWENTY = {"train": Fraction(4, 5), "test": Fraction(1, 5)}


@dataclass
class Known:
    """What a draw looks at in a source."""

    parts: Sequence[Part]
    labels: NDArray[np.integer] | None = None


def classes(*counts: int) -> Source:
    labels = np.repeat(np.arange(len(counts)), counts)
    return Known([Part("", sum(counts), 1000)], labels)  # type: ignore[return-value]


def parts(**records: int) -> Source:
    return Known([Part(split, count, 10 * count) for split, count in records.items()])  # type: ignore[return-value]


def drawn(
    source: Source, shares: dict[str, Fraction] | None = EIGHTY_TWENTY, seed: int = 0
) -> dict[str, list[int]]:
    return {
        members.name: members.indices(0, len(members)).tolist()
        for members in split_records(source, shares, seed)
    }


def test_shares_are_read_exactly_and_in_order() -> None:
    assert parse_splits("train=0.8, test=0.2") == EIGHTY_TWENTY
    assert list(parse_splits("test=1/3,train=2/3")) == ["test", "train"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("train", "'train' is not NAME=FRACTION"),
        ("train=0.8,", "'' is not NAME=FRACTION"),
        ("train=0.8,test=0.3", "the fractions add up to 1.1, not to 1"),
        ("train=0.8,train=0.2", "'train' is named twice"),
        ("train=most,test=0.2", "'most' is not a fraction"),
        ("train=80%,test=20%", "'80%' is not a fraction"),
        ("train=1/0", "'1/0' is not a fraction"),
        ("train=1e9", "'1e9' is not a fraction"),
        ("train=0,test=1", "'0' is not between 0 and 1"),
        ("Train=1", "'Train' cannot be the name of a split"),
        ("all=1", "'all' cannot be the name of a split"),
        ("a/b=1", "'a/b' cannot be the name of a split"),
    ],
)
def test_splits_that_cannot_be_meant_are_explained(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_splits(text)
    assert caught.value.message == f"Cannot read the splits '{text}': {reason}."
    assert caught.value.hint == "Write them as train=0.8,test=0.2."  # of --split, --splits and Python alike


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 5))
def test_every_record_is_drawn_once_and_every_class_keeps_its_shares(counts: list[int], seed: int) -> None:
    source = classes(*counts, 10)
    total = sum(counts) + 10
    splits = drawn(source, EIGHTY_TWENTY, seed)
    assert sorted(splits["train"] + splits["test"]) == list(range(total))
    assert abs(len(splits["test"]) - total / 5) < 1
    assert source.labels is not None
    for label, count in Counter(source.labels[splits["test"]].tolist()).items():
        assert abs(count - [*counts, 10][label] / 5) < 2


@given(st.integers(10, 5000), st.integers(0, 5))
def test_records_without_known_classes_are_drawn_once_each(records: int, seed: int) -> None:
    splits = drawn(
        parts(**{"": records}), {"a": Fraction(1, 3), "b": Fraction(1, 2), "c": Fraction(1, 6)}, seed
    )
    assert sorted(splits["a"] + splits["b"] + splits["c"]) == list(range(records))
    assert abs(len(splits["b"]) - records / 2) <= 1


@pytest.mark.parametrize("source", [classes(200, 200), parts(**{"": 400})], ids=["classes", "no classes"])
def test_the_seed_decides_the_draw(source: Source) -> None:
    first = drawn(source, seed=1)
    assert drawn(source, seed=1) == first
    other = drawn(source, seed=2)
    assert set(other["test"]) != set(first["test"])
    assert first["train"] != sorted(first["train"])


def test_the_sizes_of_the_splits_add_up() -> None:
    for source in (classes(7, 4), parts(**{"": 11})):
        sizes = [members.size for members in split_records(source, EIGHTY_TWENTY, 0)]
        assert sum(sizes) == sum(part.size for part in source.parts)


def test_without_shares_everything_is_train_or_what_the_source_says() -> None:
    assert drawn(classes(2), None).keys() == {"train"}
    splits = drawn(parts(validation=3, test=0, train=5), None)
    assert {name: sorted(indices) for name, indices in splits.items()} == {
        "train": [3, 4, 5, 6, 7],
        "validation": [0, 1, 2],
    }
    assert list(splits) == ["train", "validation"]


def test_a_part_of_a_split_is_that_part_of_the_whole() -> None:
    (members,) = split_records(classes(50, 50), None, 0)
    whole = members.indices(0, 100).tolist()
    assert members.indices(20, 60).tolist() == whole[20:60]


def test_drawing_splits_from_a_source_that_has_its_own_is_refused() -> None:
    with pytest.raises(UsageError, match="has the splits test, train already"):
        split_records(parts(test=1, train=1), EIGHTY_TWENTY, 0)


@pytest.mark.parametrize("source", [classes(2), parts(**{"": 2})], ids=["classes", "no classes"])
def test_a_split_that_would_be_empty_is_named(source: Source) -> None:
    with pytest.raises(UsageError, match="'test' would be empty: there are only 2 records"):
        split_records(source, EIGHTY_TWENTY, 0)
