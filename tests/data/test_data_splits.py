from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.source import Record
from tpuctl.data.splits import parse_splits, split_records
from tpuctl.errors import UsageError

EIGHTY_TWENTY = {"train": Fraction(4, 5), "test": Fraction(1, 5)}


def records(counts: list[int], split: str = "") -> list[Record]:
    return [
        Record(f"{label:03d}/{index}", split, label, 10, 0)
        for label, count in enumerate(counts)
        for index in range(count)
    ]


def test_shares_are_read_exactly_and_in_order() -> None:
    assert parse_splits("train=0.8, test=0.2") == EIGHTY_TWENTY
    assert list(parse_splits("test=1/3,train=2/3")) == ["test", "train"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("train", "'train' is not NAME=FRACTION"),
        ("train=0.8,", "'' is not NAME=FRACTION"),
        ("train=0.8,test=0.3", "the fractions add up to 1.1, not to 1"),
        ("train=0.8,train=0.2", "'train' is there twice"),
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
    assert "train=0.8,test=0.2" in caught.value.hint


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 5))
def test_every_record_is_drawn_once_and_every_class_keeps_its_shares(counts: list[int], seed: int) -> None:
    given_records = records([*counts, 10])
    drawn = split_records(given_records, EIGHTY_TWENTY, seed)
    assert Counter(drawn["train"] + drawn["test"]) == Counter(given_records)
    assert abs(len(drawn["test"]) - len(given_records) / 5) < 1
    for label, count in Counter(record.label for record in drawn["test"]).items():
        assert abs(count - [*counts, 10][label] / 5) < 2


def test_the_seed_decides_the_draw_and_the_order_of_the_records_does_not() -> None:
    many = records([20, 20])
    first = split_records(many, EIGHTY_TWENTY, 1)
    assert split_records(many[::-1], EIGHTY_TWENTY, 1) == first
    assert split_records(many, EIGHTY_TWENTY, 2) != first


def test_without_shares_everything_is_train_or_what_the_source_says() -> None:
    assert list(split_records(records([2]), None, 0)) == ["train"]
    mixed = records([1], "validation") + records([1], "test") + records([1], "train")
    assert list(split_records(mixed, None, 0)) == ["train", "test", "validation"]


def test_drawing_splits_from_a_source_that_has_its_own_is_refused() -> None:
    with pytest.raises(UsageError, match="split folders test, train already"):
        split_records(records([1], "train") + records([1], "test"), EIGHTY_TWENTY, 0)


def test_a_split_that_would_be_empty_is_named() -> None:
    with pytest.raises(UsageError, match="'test' would be empty: there are only 2 records"):
        split_records(records([2]), EIGHTY_TWENTY, 0)
