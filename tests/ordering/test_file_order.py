"""Which tests are run every day, and which files while one edits."""

from __future__ import annotations

import json

import pytest

from tests.ordering import file_order
from tests.ordering.file_order import DAILY, FIRST, LONG, MEASURED, SHORTEST, daily, is_long, written
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("seconds", "places"),
    [
        ([0.1, 0.1], {0, 1}),
        ([FIRST, DAILY, 0.0], {0, 1, 2}),
        ([0.0, DAILY / 2, DAILY, DAILY / 2], {0, 1, 3}),
        ([DAILY / 2] * 9, {0, 1, 2}),
        ([FIRST + 1, DAILY + 1, DAILY + 2], {1}),
        ([FIRST + 2, FIRST + 1], set()),
        ([], set()),
    ],
)
def test_the_first_test_of_a_file_and_the_shortest_others_are_run_every_day(
    seconds: list[float], places: set[int]
) -> None:
    assert daily(seconds) == places


def test_files_that_take_a_while_are_left_out_while_one_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"tests/z.py": {"test_a": (LONG, 1), "test_b": (LONG, 3)}, "tests/y.py": {"test_a": (LONG, 9)}}
    monkeypatch.setattr(file_order, "MEASURED", times)
    assert [file for file in ("tests/x.py", "tests/y.py", "tests/z.py") if is_long(file)] == ["tests/z.py"]


def test_times_are_written_as_they_are_read() -> None:
    times = {"tests/a.py": {"test_b": (SHORTEST, 2), "test_c": (0.1, 9)}, "tests/b.py": {"test_d": (0.0, 1)}}
    assert json.loads(written(times)) == {"tests/a.py": {"test_b": [SHORTEST, 2]}}


def test_what_is_measured_is_there() -> None:
    assert [file for file in MEASURED if not (ROOT / file).exists()] == []
