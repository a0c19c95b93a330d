"""The order in which several processes get the files of tests."""

from __future__ import annotations

import pytest

from tests.ordering.file_order import BETWEEN, LONG, dealt, is_left_out
from tests.paths import ROOT


def test_long_files_come_first_each_with_some_others_after_it() -> None:
    short = [f"tests/test_{number}.py" for number in range(10)]
    first, second = "tests/jobs/test_digits_job.py", "tests/soak/test_soak.py"
    order = list(dealt([*short, second, first]))
    assert order == [first, *short[:BETWEEN], second, *short[BETWEEN:]]


def test_long_files_are_read_unless_they_are_left_out() -> None:
    long, short = "tests/soak/test_soak.py", "tests/test_clock.py"
    assert is_left_out(long, "not slow and not long")
    assert not is_left_out(long, "not slow")
    assert not is_left_out(long, "")
    assert not is_left_out(short, "not slow and not long")


@pytest.mark.parametrize("start", LONG)
def test_what_is_called_long_is_there(start: str) -> None:
    assert (ROOT / start).exists()
