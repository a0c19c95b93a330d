"""What one process of a run computes for all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ordering.shared import FOLDER, shared


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))


def test_a_value_is_computed_once_in_all_processes_that_ask_at_the_same_time() -> None:
    reading, writing = os.pipe()

    def compute() -> list[int]:
        os.write(writing, b"x")
        return [os.getpid()]

    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            os._exit(0 if shared("pid", compute) else 1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    os.close(writing)
    with open(reading, "rb") as computed:
        assert computed.read() == b"x"
    assert shared("pid", compute)[0] in children


def test_a_value_that_could_not_be_computed_is_computed_by_the_next() -> None:
    with pytest.raises(ZeroDivisionError):
        shared("number", lambda: 1 // 0)
    assert shared("number", lambda: 7) == 7


def test_each_name_has_a_value_of_its_own() -> None:
    assert [shared(name, lambda name=name: name) for name in ("a", "b", "a")] == ["a", "b", "a"]
