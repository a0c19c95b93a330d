"""The order of records: a permutation by a seed, the splits that are drawn from it, and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tpuctl.data.order import Permutation, Sample, parse_splits, sample_of, split_records
from tpuctl.data.source import Part, Source
from tpuctl.errors import UsageError


@given(st.integers(1, 3000), st.integers(0, 2**64))
def test_every_place_is_taken_once(size: int, seed: int) -> None:
    permuted = Permutation(size, seed, "shard")(np.arange(size))
    assert sorted(permuted.tolist()) == list(range(size))


def test_the_order_is_this_one_for_ever() -> None:
    """A record is in the same shard with every version of Python and NumPy."""
    assert Permutation(10, 0, "shard")(np.arange(10)).tolist() == TEN
    assert Permutation(10**8, 7, "shard")(np.array([0, 1, 99_999_999])).tolist() == HUNDRED_MILLION


@pytest.mark.parametrize("other", [Permutation(1000, 1, "shard"), Permutation(1000, 0, "split")])
def test_seed_and_purpose_make_another_order(other: Permutation) -> None:
    places = np.arange(1000)
    assert np.count_nonzero(other(places) == Permutation(1000, 0, "shard")(places)) < 20


def test_neighbours_end_up_far_apart() -> None:
    """Of 8 shards each gets about an eighth of any run of records: within six standard deviations."""
    size, shards = 80_000, 8
    shard = np.empty(size, np.int64)
    shard[Permutation(size, 0, "shard")(np.arange(size))] = np.arange(size) * shards // size
    counts = np.bincount(shard[:8000], minlength=shards)
    assert np.all(np.abs(counts - 1000) < 6 * np.sqrt(8000 * 7 / 64 * 0.9))
    assert 0.1 < np.mean(shard[1:] == shard[:-1]) < 0.15


TEN = [4, 0, 5, 7, 3, 2, 9, 6, 8, 1]
HUNDRED_MILLION = [3903529, 19856264, 80737505]


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


RECORDS = [bytes([number]) for number in range(8)]


@pytest.mark.parametrize("most", [None, 8, 9])
def test_a_sample_of_all_is_all(most: int | None) -> None:
    sample = sample_of(8, most, 0)
    assert sample.places is None
    assert list(sample.filter(iter(RECORDS))) == RECORDS
    assert [sample.place(number) for number in (0, 7)] == [0, 7]


@pytest.mark.parametrize("most", [1, 3, 7])
def test_a_part_is_in_the_order_of_the_records_and_another_by_another_seed(most: int) -> None:
    sample = sample_of(8, most, 0)
    assert sample.places is not None
    places = sample.places.tolist()
    assert places == sorted(set(places))
    assert len(places) == most
    assert [sample.place(number) for number in range(most)] == places
    assert list(sample.filter(iter(RECORDS))) == [RECORDS[place] for place in places]
    assert sample_of(8, most, 0).places.tolist() == places  # type: ignore[union-attr]
    others = [sample_of(1_000, most, seed).places.tolist() for seed in (0, 1)]  # type: ignore[union-attr]
    assert others[0] != others[1]


@pytest.mark.parametrize(("places", "read"), [([2, 5], 6), ([0], 1), ([7], 8), ([], 1)])
def test_no_record_is_read_after_the_last_of_them(places: list[int], read: int) -> None:
    taken: list[int] = []

    def records() -> Iterator[bytes]:
        for number, record in enumerate(RECORDS):
            taken.append(number)
            yield record

    sample = Sample(np.array(places, np.int64))
    assert list(sample.filter(records())) == [RECORDS[place] for place in places]
    assert len(taken) == read
