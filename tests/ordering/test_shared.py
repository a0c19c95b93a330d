"""What one process of a run computes for all."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tests.ordering.shared import FOLDER, shared


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))


def test_others_wait_while_one_computes_a_value_and_get_the_same(tmp_path: Path) -> None:
    def compute() -> int:
        with (tmp_path / "number").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return 7

    assert shared("number", compute) == 7
    assert shared("number", lambda: 8) == 7


def test_a_value_that_could_not_be_computed_is_computed_by_the_next() -> None:
    with pytest.raises(ZeroDivisionError):
        shared("number", lambda: 1 // 0)
    assert shared("number", lambda: 7) == 7


def test_each_name_has_a_value_of_its_own() -> None:
    assert [shared(name, lambda name=name: name) for name in ("a", "b", "a")] == ["a", "b", "a"]
