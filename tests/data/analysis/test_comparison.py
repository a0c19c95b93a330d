"""In what two datasets differ: which records have the same content, and which only look so."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tpuctl.data.analysis import comparison
from tpuctl.data.analysis.comparison import (
    Comparison,
    Duplicates,
    Fingerprints,
    compare,
    find_duplicates,
    fingerprint,
    hashes,
)
from tpuctl.data.schema.features import Image, Label, Tensor, Text
from tpuctl.data.tfrecord.example_encoding import encode

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


FEATURES = {"image": Image((None, None, 3)), "label": Label(("a", "b")), "n": Tensor("int64"), "t": Text()}
BOTH_SPLITS = ["train", "test"]
BASE: dict[str, Any] = {"image": [b"picture"], "label": [1], "n": [2], "t": [b"text"]}


@pytest.fixture
def prints() -> Iterator[Fingerprints]:
    made = Fingerprints()
    yield made
    made.close()


def content(**changed: Any) -> tuple[int, int]:
    return fingerprint({**BASE, **changed}, FEATURES)[:2]


def test_the_content_of_a_record_is_its_pictures() -> None:
    assert content(label=[0], n=[3], t=[b"x"]) == content()
    assert content(image=[b"other"]) != content()


def test_without_pictures_it_is_all_but_the_labels() -> None:
    def of(**values: Any) -> tuple[int, int, int]:
        return fingerprint(values, FEATURES)

    assert of(n=[1], label=[0])[:2] == of(n=[1], label=[1])[:2]
    assert of(n=[1], label=[0])[2] != of(n=[1], label=[1])[2]
    assert of(label=[0])[:2] != of(label=[1])[:2], "labels alone are content"
    assert of(n=[1])[:2] != of(n=[2])[:2]
    assert of(unknown=[1])[:2] != of(unknown=[2])[:2]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"t": [b"ab"]}, {"t": [b"a", b"b"]}),
        ({"t": [b"a", b""]}, {"t": [b"", b"a"]}),
        ({"t": [b"1"]}, {"n": [1]}),
        ({"n": [12]}, {"n": [1, 2]}),
        ({"n": []}, {"t": []}),
        ({"n": []}, {"n": [0]}),
    ],
)
def test_other_values_are_another_content(a: dict[str, Any], b: dict[str, Any]) -> None:
    one, other = fingerprint(a, FEATURES), fingerprint(b, FEATURES)
    assert all(first != second for first, second in zip(one, other, strict=True))


def test_a_record_has_the_fingerprint_of_its_values() -> None:
    assert hashes(encode(BASE), FEATURES) == fingerprint(BASE, FEATURES)
    reordered = dict(reversed(BASE.items()))
    assert fingerprint(reordered, FEATURES) == fingerprint(BASE, FEATURES)


@pytest.mark.parametrize("part", [1 << 20, 4])
def test_rows_of_one_key_are_in_one_part_in_order(
    prints: Fingerprints, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_PART", part)
    for number in range(10):
        prints.add((number % 3, 7, number), number, number % 2, 9 - number)
    assert len(prints) == 10
    assert prints.part_count == (1 if part > 10 else 3)
    rows = [[tuple(row) for row in part.tolist()] for part in prints.parts()]
    assert len(rows) == prints.part_count
    assert sorted(row for part in rows for row in part) == sorted(
        (number % 3, 7, number, number, number % 2, 9 - number) for number in range(10)
    )
    for of_part in rows:
        assert of_part == sorted(of_part, key=lambda row: (row[0], row[1], row[4], row[5]))
    keys = [{row[0] for row in part} for part in rows]
    assert sum(map(len, keys)) == 3
    assert [len(list(prints.parts(count=2)))] == [2]


def test_nothing_is_in_one_empty_part(prints: Fingerprints) -> None:
    assert (len(prints), prints.part_count, [len(part) for part in prints.parts()]) == (0, 1, [0])


def test_more_than_are_held_are_in_order(prints: Fingerprints) -> None:
    for number in range(5000):
        prints.add((number, 0, 0), 0, 0, number)
    (rows,) = prints.parts()
    assert rows["index"].tolist() == list(range(5000))


def test_duplicates_are_counted_within_a_split_and_between_two(prints: Fingerprints) -> None:
    same = {1: ["train"], 2: ["train"] * 3, 3: ["train", "test"], 4: ["test", "test", "train"]}
    for key, splits in same.items():
        for number, split in enumerate(splits):
            prints.add((key, 0, 0), 0, BOTH_SPLITS.index(split), 10 * key + number)
    found = find_duplicates(prints, BOTH_SPLITS)
    assert found.within == {"train": 2, "test": 1}
    assert found.leaks == {("train", "test"): 2}
    assert found.examples == (
        (("train", 30), ("test", 31)),
        (("train", 42), ("test", 40), ("test", 41)),
        (("train", 20), ("train", 21), ("train", 22)),
    )
    assert found.alike == 0


def test_the_two_halves_of_a_content_count(prints: Fingerprints) -> None:
    for number, more in enumerate((1, 2, 2)):
        prints.add((5, more, 0), 0, 0, number)
    assert find_duplicates(prints, BOTH_SPLITS).within == {"train": 1}


def test_five_examples_of_five_places_are_kept(prints: Fingerprints) -> None:
    for key in range(6):
        for number in range(6):
            prints.add((key, 0, 0), 0, 0, 10 * key + number)
    examples = find_duplicates(prints, BOTH_SPLITS).examples
    assert [len(group) for group in examples] == [5] * 5
    assert examples[0] == tuple(("train", number) for number in range(5))


@pytest.mark.parametrize(
    ("looks", "alike"),
    [
        ([(1, 9), (2, 9)], 2),
        ([(1, 9), (1, 9)], 0),
        ([(1, 9), (1, 9), (2, 9)], 2),
        ([(1, 9), (2, 9), (3, 9), (4, 8)], 3),
        ([(1, 0), (2, 0)], 0),
        ([(1, 9), (2, 8)], 0),
        ([(1, 9), (2, 9), (3, 8), (4, 8)], 4),
        ([(1, (1 << 64) - 1), (2, (1 << 64) - 1)], 2),
        ([], 0),
    ],
)
def test_pictures_that_look_alike_are_those_of_other_content(
    prints: Fingerprints, looks: list[tuple[int, int]], alike: int
) -> None:
    for number, (key, look) in enumerate(looks):
        prints.add((key, 0, 0), look, 0, number)
    assert find_duplicates(prints, BOTH_SPLITS).alike == alike
