"""The classes of a column of labels: their names, their numbers, and the class of each record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tpuctl.data.schema import classes
from tpuctl.data.schema.classes import ClassCollector, Classes
from tpuctl.errors import UsageError


def collected(*batches: Sequence[object]) -> Classes:
    collector = ClassCollector("label")
    for batch in batches:
        collector.add(batch)
    return collector.finish()


def labels(found: Classes) -> list[int] | None:
    return None if found.labels is None else found.labels.tolist()


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 0, 1]),
        (["10", "9", "2"], tuple(map(str, range(11))), [10, 9, 2]),
        (["1", "0"], ("0", "1"), [1, 0]),
        ([3, 1], ("0", "1", "2", "3"), [3, 1]),
        (["999"], tuple(map(str, range(1000))), [999]),
        (["1000", "5"], ("5", "1000"), [1, 0]),
        (["-1", "1"], ("-1", "1"), [0, 1]),
        (["-1", "-10", "0"], ("-10", "-1", "0"), [1, 0, 2]),
        (["1.0", "0.", "2.00"], ("0", "1", "2"), [1, 0, 2]),
        ([1.0, 0.0], ("0", "1"), [1, 0]),
        ([True, False], ("false", "true"), [1, 0]),
        (["1", "x"], ("1", "x"), [0, 1]),
        (["a  b", " a b\n", "c"], ("a b", "c"), [0, 0, 1]),
        (["1" * 18, "2"], ("2", "1" * 18), [1, 0]),
        (["1" * 19, "2"], ("1" * 19, "2"), [0, 1]),
    ],
)
def test_classes_are_in_the_order_of_numbers_or_of_the_alphabet(
    values: list[object], names: tuple[str, ...], numbers: list[int]
) -> None:
    found = collected(values)
    assert (found.names, labels(found), found.several) == (names, numbers, False)
    assert [found.numbers[value] for value in values] == numbers  # type: ignore[index]


def test_whole_numbers_up_to_the_last_are_classes_if_none_is_left_out() -> None:
    assert collected(range(1500)).names == tuple(map(str, range(1500)))
    assert collected([*range(1000), 1001]).names == (*map(str, range(1000)), "1001")


@pytest.mark.parametrize("missing", [None, "", "  ", "NA", "n/a", "NaN", "Null", "none", float("nan")])
def test_a_missing_value_has_no_class(missing: object) -> None:
    found = collected(["b", missing, "a"])
    assert (found.names, labels(found)) == (("a", "b"), [1, -1, 0])
    assert missing not in found.numbers


@pytest.mark.parametrize(
    ("values", "fractions"),
    [
        (["0.5", "1"], True),
        (["1e3", "2"], True),
        ([0.5, 1.5], True),
        (["+1", ".5"], True),
        (["-.5e-3", "7."], True),
        (["1", "2"], False),
        (["1.0", "2"], False),
        (["0.5", "x"], False),
        (["0.5", "1."], True),
        (["e3", "0.5"], False),
        ([], False),
    ],
)
def test_numbers_that_are_not_whole_are_told(values: list[object], fractions: bool) -> None:
    assert collected(values).fractions is fractions


def test_records_come_in_batches_also_by_their_different_values() -> None:
    collector = ClassCollector("label")
    collector.add(["b"])
    collector.add_ranked(["c", "b"], np.array([0, 1, 1, 0]))
    collector.add(["a"])
    assert labels(collector.finish()) == [1, 2, 1, 1, 2, 0]
    assert labels(collected()) == []


def test_lists_of_classes_have_no_single_class_for_a_record() -> None:
    found = collected([["b", "a"], []], [["c"]])
    assert (found.names, found.labels, found.several) == (("a", "b", "c"), None, True)
    assert [found.numbers[name] for name in "abc"] == [0, 1, 2]


def test_a_value_that_is_no_key_has_no_class() -> None:
    found = collected([{"a": 1}, "a"])
    assert (found.names, labels(found)) == (("a",), [-1, 0])


def test_labels_of_more_records_than_are_held_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "MOST_LABELS", 3)
    assert labels(collected(["a", "b"], ["a"])) == [0, 1, 0]
    assert collected(["a", "b"], ["a", "b"]).labels is None


def test_values_of_more_characters_than_are_held_are_no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_MOST_CHARACTERS", 100)
    collector = ClassCollector("kind")
    for _ in range(50):
        collector.add(["x" * 40, "y" * 40, 1, None])
    collector.add_ranked(["x" * 40, "z" * 20], np.array([0, 1]))
    with pytest.raises(UsageError, match="different values of more than 100 characters") as refused:
        collector.add([["x" * 40, "u"]])
    assert refused.value.hint == "Give it a type: --type kind=text."


def test_more_than_a_hundred_thousand_values_are_no_classes() -> None:
    collector = ClassCollector("what it is")
    collector.add(map(str, range(100_000)))
    with pytest.raises(UsageError) as refused:
        collector.add(["another"])
    assert refused.value.message == (
        "The column 'what it is' has more than 100000 different values: they are no classes."
    )
    assert refused.value.hint == "Give it a type: --type 'what it is'=text."
    assert refused.value.facts["column"] == "what it is"


def test_numbers_get_the_names_that_a_user_gives() -> None:
    called = collected(["2", "0", "", "7"]).called(("a", "b", "c"))
    assert (called.names, labels(called), called.fractions) == (("a", "b", "c"), [2, 0, -1, -1], False)
    assert called.numbers == {"2": 2, "0": 0}


def test_a_number_below_zero_or_a_word_has_no_name() -> None:
    called = collected(["-1", "1", "2000"]).called(("a", "b"))
    assert (labels(called), called.numbers) == ([-1, 1, -1], {"1": 1})
    words = collected(["x", "1"]).called(("a", "b"))
    assert (labels(words), words.numbers) == ([-1, 1], {"1": 1})


def test_lists_of_numbers_get_names_too() -> None:
    called = collected([["1", "5"]]).called(("a", "b"))
    assert (called.several, called.labels, called.numbers) == (True, None, {"1": 1})
