"""Each complete line of a growing file is read once, also when the file is rotated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.cloud.simulator.event_log import LogCursor, follow, last
from tpuctl.simulator_folder import rotated


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_there_is_nothing_to_read_without_a_file(path: Path) -> None:
    assert LogCursor(path).new_lines() == []
    path.touch()
    assert LogCursor(path).new_lines() == []


def test_a_line_is_read_once_it_is_complete(path: Path) -> None:
    cursor = LogCursor(path)
    append(path, "one\n\ntw")
    assert cursor.new_lines() == [b"one", b""]
    append(path, "o")
    assert cursor.new_lines() == []
    append(path, "\nthree\n")
    assert cursor.new_lines() == [b"two", b"three"]


@pytest.mark.parametrize(("with_previous", "rest"), [(True, [b"two", b"three"]), (False, [b"three"])])
def test_after_a_rotation_the_rest_of_the_previous_file_comes_first(
    path: Path, with_previous: bool, rest: list[bytes]
) -> None:
    cursor = LogCursor(path, rotated(path) if with_previous else None)
    append(path, "one\n")
    assert cursor.new_lines() == [b"one"]
    append(path, "two\n")
    path.rename(rotated(path))
    append(path, "three\n")
    assert cursor.new_lines() == rest
    assert cursor.new_lines() == []


def test_the_first_look_includes_the_previous_file(path: Path) -> None:
    append(rotated(path), "one\n")
    append(path, "two\n")
    assert LogCursor(path, rotated(path)).new_lines() == [b"one", b"two"]


def test_between_two_files_the_previous_one_is_read(path: Path) -> None:
    cursor = LogCursor(path, rotated(path))
    append(path, "one\n")
    path.rename(rotated(path))
    assert cursor.new_lines() == [b"one"]
    append(path, "two\n")
    assert cursor.new_lines() == [b"two"]


def test_what_came_until_the_end_is_followed() -> None:
    batches = [[1, 2], [], [3], []]
    alive = iter([True, True, False, False])
    assert list(follow(lambda: batches.pop(0), lambda: next(alive))) == [1, 2, 3]


@pytest.mark.parametrize(("count", "items"), [(None, [1, 2, 3]), (0, []), (2, [2, 3]), (5, [1, 2, 3])])
def test_the_last_items(count: int | None, items: list[int]) -> None:
    assert last([1, 2, 3], count) == items
