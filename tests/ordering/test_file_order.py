"""The order in which several processes get the files of tests."""

from __future__ import annotations

import pytest

from tests.ordering import file_order
from tests.ordering.file_order import BETWEEN, LONG, SLOW, dealt, is_left_out
from tests.ordering.processor_time import SECONDS, slow_files
from tests.paths import ROOT


def test_long_files_come_first_each_with_some_others_after_it() -> None:
    short = [f"tests/test_{number}.py" for number in range(10)]
    first, second = "tests/jobs/test_digits_job.py", "tests/soak/test_soak.py"
    order = list(dealt([*short, second, first]))
    assert order == [first, *short[:BETWEEN], second, *short[BETWEEN:]]


def test_of_the_others_those_that_take_a_while_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one of them is begun last, and the other processes wait for it."""
    monkeypatch.setattr(file_order, "SLOW", {"tests/z.py": 2.0, "tests/y.py": 9.0})
    assert list(dealt(["tests/a.py", "tests/b.py", "tests/z.py", "tests/y.py"])) == [
        "tests/y.py",
        "tests/z.py",
        "tests/a.py",
        "tests/b.py",
    ]


def test_long_files_are_read_unless_they_are_left_out() -> None:
    long, short = "tests/soak/test_soak.py", "tests/test_clock.py"
    assert is_left_out(long, "not slow and not long")
    assert not is_left_out(long, "not slow")
    assert not is_left_out(long, "")
    assert not is_left_out(short, "not slow and not long")


def test_files_that_take_a_while_are_left_out_as_the_long_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_order, "SLOW", {"tests/z.py": 2.0})
    assert is_left_out("tests/z.py", "not slow and not long")
    assert not is_left_out("tests/z.py", "not slow")
    assert not is_left_out("tests/a.py", "not slow and not long")


def test_what_takes_a_while_uses_much_by_itself_and_for_each_of_its_tests() -> None:
    many, few, short, long = "tests/many.py", "tests/few.py", "tests/short.py", "tests/jobs/test_bert.py"
    seconds = {many: 5.0, few: 5.04, short: SECONDS, long: 9.0}
    tests = {many: 1000, few: 10, short: 1, long: 1}
    assert slow_files(seconds, tests) == {few: 5.0}


def test_what_is_called_long_is_there() -> None:
    assert [start for start in (*LONG, *SLOW) if not (ROOT / start).exists()] == []
