"""What `data diff` shows of a difference: every table, the places of records, and the JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.running_simulator import CommandResult
from tpuctl.data.analysis.comparison import Comparison
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets import analysis as flow
from tpuctl.flows.datasets.analysis import DatasetDiff, Difference

Tpuctl = Callable[..., CommandResult]
A, B = DatasetRef("rows", "1.0.0"), DatasetRef("rows", "2.0.0")
FACTS = (Difference("feature x", "int64", None), Difference("split test", None, "4 records"))
RECORDS = Comparison(
    same=11, only_a=12, only_b=13, moved=14, changed=15,
    examples_a=tuple(("train", number) for number in range(4)),
    examples_b=(("test", 7),),
    examples_moved=tuple((("train", number), ("test", number + 1)) for number in range(3)),
    examples_changed=((("train", 8), ("train", 9)),),
)  # fmt: skip
NO_DIFFERENCE = Comparison(3, 0, 0, 0, 0, (), (), (), ())


@pytest.fixture
def show_diff(tpuctl: Tpuctl, rows: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """The command on a dataset of which the flow returns a given difference: small ones have few places."""

    def shown(difference: DatasetDiff, *options: str) -> CommandResult:
        monkeypatch.setattr(flow, "diff", lambda *arguments: difference)
        return tpuctl("data", "diff", rows, rows, *options)

    return shown


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_facts_and_records_are_tables(show_diff: Callable[..., CommandResult]) -> None:
    result = show_diff(DatasetDiff(A, B, FACTS, RECORDS))
    assert cells(result.out) == [
        ["rows/1.0.0", "rows/2.0.0"],
        ["feature x", "int64", "-"],
        ["split test", "-", "4 records"],
        [""],
        ["RECORDS", "COUNT", "SUCH AS"],
        ["the same", "11"],
        ["only in rows/1.0.0", "12", "train 0, train 1, train 2"],
        ["only in rows/2.0.0", "13", "test 7"],
        ["in another split", "14", "train 0 -> test 1, train 1 -> test 2"],
        ["with another label", "15", "train 8 -> train 9"],
    ]
    assert result.err.splitlines()[-1] == "Next: tpuctl data stats rows/2.0.0"


def test_without_other_facts_there_are_the_records_alone(show_diff: Callable[..., CommandResult]) -> None:
    assert cells(show_diff(DatasetDiff(A, B, (), RECORDS)).out)[0] == ["RECORDS", "COUNT", "SUCH AS"]
    same = show_diff(DatasetDiff(A, B, (), NO_DIFFERENCE))
    sentence = "There are no differences between rows/1.0.0 and rows/2.0.0: 3 records are the same.\n"
    assert same.out == sentence
    assert "Next:" not in same.err


def test_the_json_has_every_place(show_diff: Callable[..., CommandResult]) -> None:
    assert show_diff(DatasetDiff(A, B, FACTS, RECORDS), "--json").json["diff"] == {
        "a": "rows/1.0.0",
        "b": "rows/2.0.0",
        "differs": True,
        "facts": [
            {"name": "feature x", "a": "int64", "b": None},
            {"name": "split test", "a": None, "b": "4 records"},
        ],
        "records": {
            "same": 11,
            "only_a": {"count": 12, "examples": [["train", number] for number in range(4)]},
            "only_b": {"count": 13, "examples": [["test", 7]]},
            "moved": {
                "count": 14,
                "examples": [[["train", number], ["test", number + 1]] for number in range(3)],
            },
            "changed": {"count": 15, "examples": [[["train", 8], ["train", 9]]]},
        },
    }
    assert show_diff(DatasetDiff(A, B, (), NO_DIFFERENCE), "--json").json["diff"]["differs"] is False
