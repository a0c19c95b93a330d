"""What the error of records that cannot be used says."""

from __future__ import annotations

import pytest

from tpuctl.data.options import BadRecord, BadRecordsError


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
