from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import FrozenInstanceError

import pytest

from tpuctl.data.analysis import comparison
from tpuctl.data.analysis.comparison import (
    Comparison,
    Duplicates,
    Fingerprints,
    compare,
    find_duplicates,
    fingerprint,
)
from tpuctl.data.schema.features import Image, Label, Tensor, Text

Record = tuple[int, int, str]
"""Content, label, split."""
SPLITS = ["test", "train"]


def prints_of(records: Sequence[Record]) -> Fingerprints:
    prints = Fingerprints()
    for index, (content, label, split) in enumerate(records):
        prints.add((content * 7919, content, hash((content, label)) & 0xFFFF), 0, SPLITS.index(split), index)
    return prints


def compared(a: Sequence[Record], b: Sequence[Record]) -> Comparison:
    with closing(prints_of(a)) as first, closing(prints_of(b)) as second:
        return compare(first, second, SPLITS)


def duplicates(records: Sequence[Record]) -> Duplicates:
    with closing(prints_of(records)) as prints:
        return find_duplicates(prints, SPLITS)


@pytest.fixture(params=[1 << 20, 8], ids=["at once", "in parts"])
def _parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_PART", request.param)


@pytest.mark.usefixtures("_parts")
def test_records_are_matched_by_content_and_split_and_label() -> None:
    a: list[Record] = [(1, 0, "train"), (2, 0, "train"), (3, 1, "train"), (4, 1, "test"), (9, 9, "test")]
    b: list[Record] = [(1, 0, "train"), (2, 1, "train"), (3, 1, "test"), (5, 1, "test"), (9, 9, "test")]
    result = compared(a, b)
    assert (result.same, result.only_a, result.only_b, result.moved, result.changed) == (2, 1, 1, 1, 1)
    assert result.examples_moved == ((("train", 2), ("test", 2)),)
    assert result.examples_changed == ((("train", 1), ("train", 1)),)
    assert result.examples_a == (("test", 3),)
    assert result.examples_b == (("test", 3),)
    with pytest.raises(FrozenInstanceError):
        result.same = 3  # type: ignore[misc]


@pytest.mark.usefixtures("_parts")
def test_several_records_of_a_content_match_as_many() -> None:
    result = compared([(1, 0, "train")] * 3, [(1, 0, "train")] * 2 + [(1, 0, "test")] * 2)
    assert (result.same, result.moved, result.only_a, result.only_b) == (2, 1, 0, 1)


@pytest.mark.usefixtures("_parts")
def test_the_same_records_in_another_order_do_not_differ() -> None:
    rng = random.Random(1)
    records: list[Record] = [(rng.randrange(60), rng.randrange(2), rng.choice(SPLITS)) for _ in range(200)]
    result = compared(records, rng.sample(records, len(records)))
    assert (result.same, result.only_a, result.only_b, result.moved, result.changed) == (200, 0, 0, 0, 0)


@pytest.mark.usefixtures("_parts")
def test_duplicates_and_leaks_are_counted() -> None:
    result = duplicates(
        [(1, 0, "train"), (1, 0, "train"), (1, 0, "test"), (2, 0, "train"), (3, 0, "test")] * 1
    )
    assert result.within == {"train": 1}
    assert result.leaks == {("test", "train"): 1}
    assert result.examples == ((("test", 2), ("train", 0), ("train", 1)),)
    assert duplicates([(n, 0, "train") for n in range(50)]).examples == ()


@pytest.mark.usefixtures("_parts")
def test_the_content_of_a_record_is_its_pictures_or_all_but_its_labels() -> None:
    picture = {"image": Image((None, None, 3)), "label": Label(("a",)), "id": Tensor("int64")}
    first = fingerprint({"image": [b"x"], "label": [0], "id": [1]}, picture)
    assert first[:2] == fingerprint({"image": [b"x"], "label": [1], "id": [2]}, picture)[:2]
    assert first[2] != fingerprint({"image": [b"x"], "label": [1], "id": [1]}, picture)[2]
    row = {"text": Text(), "n": Tensor("int64"), "label": Label(("a",))}
    assert (
        fingerprint({"text": [b"ab"], "n": [1], "label": [0]}, row)[:2]
        == fingerprint({"text": [b"ab"], "n": [1], "label": [7]}, row)[:2]
        != fingerprint({"text": [b"a", b"b"], "n": [1], "label": [0]}, row)[:2]
    )
    only = {"label": Label(("a",))}
    assert fingerprint({"label": [0]}, only) != fingerprint({"label": [1]}, only)
