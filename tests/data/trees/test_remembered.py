"""Files that were fetched for their heads are remembered, in memory and then on the disk, within bounds."""

from __future__ import annotations

import os

import pytest

from tpuctl.data.trees import objects
from tpuctl.data.trees.objects import RememberedFiles
from tpuctl.data.trees.tree import ListedFile

FILES = [ListedFile(str(number), 100, number) for number in range(6)]


def contents(file: ListedFile) -> bytes:
    return file.path.encode() * 100


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> RememberedFiles:
    """With space for two files in memory and three on the disk."""
    monkeypatch.setattr(objects, "MOST_IN_MEMORY", 200)
    monkeypatch.setattr(objects, "MOST_ON_DISK", 300)
    return RememberedFiles()


def test_each_file_is_returned_once_wherever_it_is_held(bounded: RememberedFiles) -> None:
    for file in FILES:
        assert bounded.has_space(file) == (file.stamp < 5)
        bounded.add(file, contents(file))
    assert [bounded.take(file) for file in FILES] == [*map(contents, FILES[:5]), None]
    assert [bounded.take(file) for file in FILES] == [None] * 6
    assert bounded.has_space(FILES[0]), "there is space in memory again"


def test_another_version_of_a_file_is_another_file(bounded: RememberedFiles) -> None:
    bounded.add(FILES[0], contents(FILES[0]))
    bounded.add(FILES[0], b"twice")
    assert bounded.take(FILES[0]._replace(stamp=9)) is None
    assert bounded.take(FILES[0]) == contents(FILES[0])


def test_a_large_file_is_not_remembered(bounded: RememberedFiles) -> None:
    assert not RememberedFiles().has_space(ListedFile("a", (1 << 20) + 1, 1))


def test_a_full_disk_is_no_error(bounded: RememberedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the system's own call: no test can fill the disk."""

    def full(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    for file in FILES:
        bounded.add(file, contents(file))
    assert [bounded.take(file) for file in FILES[:3]] == [contents(FILES[0]), contents(FILES[1]), None]
    assert bounded.has_space(FILES[3])
