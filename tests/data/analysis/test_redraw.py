"""Splits that are drawn anew, and samples: which records are in which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from tpuctl.data.analysis import redraw as module
from tpuctl.data.analysis.redraw import Scan, draw_sample, label_fields, redraw, scan
from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.order import Members
from tpuctl.data.schema.features import Label, Tensor
from tpuctl.data.source import Indices, Observations, Part, Source
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.errors import UsageError

HALVES = {"train": Fraction(1, 2), "test": Fraction(1, 2)}
LABELS = Label(("a", "b", "c"))


class Held:
    """An origin of records that are held in memory."""

    bad: Sequence[BadRecord] = ()
    fingerprint = "0"

    def stamp(self, indices: Indices) -> bytes:
        return b""

    def check(self) -> None:
        pass


class InMemory(Source):
    """Records of a label and a number."""

    def __init__(self, records: Sequence[bytes | BadRecord], *parts: Part) -> None:
        super().__init__(
            kind="csv",
            origin=Held(),
            features={"y": LABELS, "n": Tensor("int64")},
            parts=parts or (Part("train", len(records), 100 * len(records)),),
        )
        self._records = records

    def read(self, indices: Indices, observations: Observations) -> Iterator[bytes | BadRecord]:
        return iter([self._records[index] for index in indices.tolist()])


def records(*values: tuple[int, int]) -> list[bytes]:
    """Return records of these labels and numbers."""
    return [encode({"y": label, "n": number}) for label, number in values]


def of(members: Members) -> list[int]:
    return sorted(members.indices(0, len(members)).tolist())


def scanned(source: Source, label: str = "y", *, grouped: bool = False) -> Scan:
    return scan(source, label, lambda done, total: None, grouped=grouped)


def test_labels_and_groups_are_read_in_one_pass() -> None:
    source = InMemory(records((2, 5), (0, 6), (1, 5), (1, 7), (0, 6)))
    known = scanned(source, grouped=True)
    assert known.labels.tolist() == [2, 0, 1, 1, 0]
    assert known.groups is not None
    assert known.groups.tolist() == [0, 1, 0, 3, 1], "the content is all but the label"
    assert scanned(source).groups is None
    assert scanned(source, "").labels.tolist() == [0] * 5
    alone = scanned(source, "", grouped=True)
    assert alone.groups is not None
    assert (alone.labels.tolist(), alone.groups.tolist()) == ([0] * 5, [0, 1, 0, 3, 1])


@pytest.mark.parametrize(("label", "number"), [(999_999, 999_999), (1_000_000, 0), (-1, 0)])
def test_a_label_is_the_number_of_a_class(label: int, number: int) -> None:
    source = InMemory([encode({"y": label, "n": 1}), encode({"n": 1}), encode({"y": b"text", "n": 1})])
    assert scanned(source).labels.tolist() == [number, 0, 0]


def test_progress_is_that_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 2)
    reports: list[tuple[int, int]] = []
    scan(
        InMemory(records(*[(0, 1)] * 5)),
        "y",
        lambda done, total: reports.append((done, total)),
        grouped=False,
    )
    assert reports == [(2, 5), (4, 5), (5, 5)]


def test_a_bad_record_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = BadRecord("a", "is damaged")
    with pytest.raises(BadRecordsError, match=r"^'a' is damaged"):
        scanned(InMemory([*records((0, 1)), bad]))
    monkeypatch.setattr(module, "MOST_LABELS", 2)
    assert scanned(InMemory(records((0, 1), (0, 2)))).labels.tolist() == [0, 0]
    with pytest.raises(UsageError, match=r"^The dataset has 3 records, and at most 2 can be drawn from\.$"):
        scanned(InMemory(records((0, 1), (0, 2), (0, 3))))


def test_each_class_keeps_its_share_in_new_splits() -> None:
    labels = [0] * 8 + [1] * 4 + [2] * 4
    source = InMemory(
        records(*((label, n) for n, label in enumerate(labels))), Part("a", 10, 500), Part("b", 6, 300)
    )
    drawn = redraw(source, HALVES, 0, scanned(source))
    assert [members.name for members in drawn] == ["train", "test"]
    assert sorted(of(drawn[0]) + of(drawn[1])) == list(range(16))
    for members in drawn:
        assert Counter(labels[index] for index in of(members)) == {0: 4, 1: 2, 2: 2}
        assert members.size == 400
    assert of(redraw(source, HALVES, 1, scanned(source))[0]) != of(drawn[0])
    assert of(redraw(source, HALVES, 0, scanned(source))[0]) == of(drawn[0])


def test_records_of_a_group_stay_together() -> None:
    numbers = [1, 2, 3, 4, 1, 2, 5, 6, 1, 7]
    source = InMemory(records(*((0, number) for number in numbers)))
    drawn = redraw(source, HALVES, 0, scanned(source, grouped=True))
    assert sorted(of(drawn[0]) + of(drawn[1])) == list(range(10))
    of_train, of_test = ({numbers[index] for index in of(members)} for members in drawn)
    assert not of_train & of_test
    assert {len(of_train), len(of_test)} == {3, 4}
    assert [members.size for members in drawn] == [100 * len(members) for members in drawn]


def test_a_split_of_no_records_is_refused() -> None:
    source = InMemory(records((0, 1), (0, 1), (0, 1)))
    with pytest.raises(UsageError, match="would be empty"):
        redraw(source, HALVES, 0, scanned(source, grouped=True))


def test_a_sample_keeps_splits_and_classes() -> None:
    labels = ([0] * 6 + [1] * 2) * 2
    source = InMemory(
        records(*((label, n) for n, label in enumerate(labels))),
        Part("train", 8, 800),
        Part("", 0, 0),
        Part("test", 8, 80),
    )
    drawn = draw_sample(source, 8, 0, scanned(source))
    assert [(members.name, len(members), members.size) for members in drawn] == [
        ("train", 4, 220),
        ("test", 4, 220),
    ]
    assert all(index < 8 for index in of(drawn[0]))
    assert all(index >= 8 for index in of(drawn[1]))
    for members in drawn:
        assert Counter(labels[index] for index in of(members)) == {0: 3, 1: 1}
    assert of(draw_sample(source, 8, 1, scanned(source))[0]) != of(drawn[0])


def test_a_sample_of_all_and_more_is_all() -> None:
    source = InMemory(records(*((0, n) for n in range(4))), Part("", 4, 40))
    for count in (4, 5):
        (members,) = draw_sample(source, count, 0, scanned(source))
        assert (members.name, of(members), members.size) == ("train", [0, 1, 2, 3], 40)
    (few,) = draw_sample(source, 3, 0, scanned(source))
    assert len(few) == 3


@pytest.mark.parametrize(
    ("names", "chosen", "field"),
    [(["y"], None, "y"), (["y", "z"], None, ""), ([], None, ""), (["y", "z"], "z", "z"), (["y"], "", "")],
)
def test_the_label_is_the_chosen_or_the_only_one(names: list[str], chosen: str | None, field: str) -> None:
    assert label_fields(names, chosen) == field


@pytest.mark.parametrize(
    ("names", "hint"), [(["y", "z"], "One of y, z."), ([], "Run it without --stratify.")]
)
def test_a_label_that_is_not_there_is_refused(names: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        label_fields(names, "x")
    assert (refused.value.message, refused.value.hint) == ("The dataset has no label 'x'.", hint)
    assert refused.value.facts == {"field": "x"}


def test_many_records_are_in_their_groups() -> None:
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 50, 300).tolist()
    known = scanned(InMemory(records(*((0, number) for number in numbers))), grouped=True)
    assert known.groups is not None
    assert known.groups.tolist() == [numbers.index(number) for number in numbers]
