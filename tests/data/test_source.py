"""What all readers of sources share: observations, samples, pairs, and the error of a source that changes.

What the error of records that cannot be used says.
"""

from __future__ import annotations

import numpy as np
import pytest

from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.source import (
    Observations,
    changed,
    closed_on_error,
    evenly_spaced,
    single_records,
    supervised_pair,
)
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import frame


@pytest.mark.parametrize(
    ("values", "only", "kept"),
    [
        ([], None, None),
        ([5], 5, [5]),
        ([5, 5, 5], 5, [5]),
        ([5, 6], None, [5, 6]),
        ([5, 6, 7, 5], None, [5, 6]),
        (["png"], "png", ["png"]),
        ([0], 0, [0]),
    ],
)
def test_a_value_that_was_always_the_same_is_known(
    values: list[int | str], only: int | str | None, kept: list[int | str] | None
) -> None:
    observations = Observations()
    for value in values:
        observations.note("height", value)
    assert observations.only("height") == only
    assert observations.only_number("height") == (only if isinstance(only, int) else None)
    assert observations.values.get("height") == kept
    assert observations.only("width") is None


def test_observations_of_several_are_those_of_all() -> None:
    first, second = Observations({"a": [1], "b": [2]}), Observations({"a": [1], "b": [3], "c": ["x"]})
    first.merge(second)
    assert first.values == {"a": [1], "b": [2, 3], "c": ["x"]}
    assert second.values == {"a": [1], "b": [3], "c": ["x"]}
    given = {"a": [1]}
    Observations(given).note("a", 2)
    assert given == {"a": [1]}


@pytest.mark.parametrize(
    ("count", "most", "indices"),
    [
        (0, 5, []), (1, 5, [0]), (5, 5, [0, 1, 2, 3, 4]), (5, 9, [0, 1, 2, 3, 4]), (10, 2, [0, 9]),
        (9, 3, [0, 4, 8]), (10, 1, [0]),
    ],
)  # fmt: skip
def test_a_sample_is_from_the_first_to_the_last(count: int, most: int, indices: list[int]) -> None:
    sample = evenly_spaced(count, most)
    assert (sample.tolist(), sample.dtype) == (indices, np.int64)


@pytest.mark.parametrize(
    ("names", "target", "pair"),
    [
        (["x", "y"], "y", ("x", "y")),
        (["y", "x"], "y", ("x", "y")),
        (["x", "y", "z"], "y", None),
        (["y"], "y", None),
        (["x"], "", None),
        (["x", "y"], "", None),
    ],
)
def test_input_and_target_are_the_only_two_fields(
    names: list[str], target: str, pair: tuple[str, str] | None
) -> None:
    assert supervised_pair(names, target) == pair


def test_a_source_that_changed_is_named_with_what_to_do() -> None:
    error = changed("a/b.png", "was removed")
    assert error.message == "The source changed during the conversion: 'a/b.png' was removed."
    assert error.hint == ("Nothing was published. Run it again when nothing writes to the source any more.")
    assert error.facts == {"file": "a/b.png"}


def test_records_of_blocks_come_one_by_one() -> None:
    records = [encode({"n": number}) for number in range(3)]
    framed = b"".join(map(frame, records[:2]))
    ends = np.cumsum([len(frame(record)) for record in records[:2]])
    bad = BadRecord("a", "is damaged")
    frames = Frames(framed, ends)
    assert list(single_records(iter([frames, bad, records[2]]))) == [*records[:2], bad, records[2]]


class Resource:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_an_error_leaves_is_closed(error: type[BaseException]) -> None:
    with closed_on_error(Resource()) as kept:
        pass
    assert not kept.is_closed
    with pytest.raises(error), closed_on_error(Resource()) as left:
        raise error
    assert left.is_closed


def records(count: int) -> list[BadRecord]:
    return [BadRecord("a.csv", "has 3 columns", line=number) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (BadRecord("a.png", "is empty"), "'a.png' is empty"),
        (BadRecord("a.csv", "is empty", line=1), "line 1 of 'a.csv' is empty"),
        (BadRecord("a.parquet", "is empty", line=2, unit="row"), "row 2 of 'a.parquet' is empty"),
    ],
)
def test_a_record_is_named_by_its_place(record: BadRecord, text: str) -> None:
    assert str(record) == text


def test_a_single_record_is_the_message() -> None:
    error = BadRecordsError(records(1))
    assert error.message == "Line 1 of 'a.csv' has 3 columns."
    assert error.hint == ("Fix or remove bad records, or skip them with --skip-bad. Nothing was published.")


@pytest.mark.parametrize(("count", "more"), [(2, ""), (5, ""), (6, "; and 1 more"), (12, "; and 7 more")])
def test_several_are_counted_and_the_first_five_named(count: int, more: str) -> None:
    named = "; ".join(map(str, records(min(count, 5))))
    assert BadRecordsError(records(count)).message == f"{count} records cannot be used: {named}{more}."


def test_a_count_that_is_not_known_to_be_the_last_says_so() -> None:
    complete, incomplete = (BadRecordsError(records(2), at_least=at_least) for at_least in (False, True))
    assert complete.message.startswith("2 records cannot be used: ")
    assert incomplete.message.startswith("At least 2 records cannot be used: ")


def test_a_hint_of_its_own_stands_before_that_to_skip() -> None:
    record = BadRecord("a.png", "cannot be read", hint="Check its permissions.")
    assert BadRecordsError([record]).hint == (
        "Check its permissions, or skip bad records with --skip-bad. Nothing was published."
    )


def test_several_records_have_the_hint_that_all_of_them_have() -> None:
    row = BadRecord("a.csv", "has 'x'", line=1, hint="Give --type a=text")
    other = BadRecord("a.csv", "has 'x'", line=2, hint="Give --type b=text")
    assert BadRecordsError([row, row]).hint == (
        "Give --type a=text, or skip bad records with --skip-bad. Nothing was published."
    )
    for bad in ([row, other], [row, *records(1)], [*records(1), row]):
        assert BadRecordsError(bad).hint == BadRecordsError(records(1)).hint


def test_every_record_is_in_the_facts() -> None:
    facts = BadRecordsError(records(7)).facts
    assert facts["file"] == "a.csv"
    assert facts["bad"] == [
        {"file": "a.csv", "line": number, "why": "has 3 columns"} for number in range(1, 8)
    ]
