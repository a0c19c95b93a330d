from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tpuctl.bucket_objects import ListedObject, ObjectPage
from tpuctl.data.trees import objects
from tpuctl.data.trees.objects import FolderScans

FOLDERS = 300


class OneInEach:
    """A bucket with one object in each of many folders."""

    bucket = "pets"

    def page(self, prefix: str, token: str = "", most: int = 0) -> ObjectPage:
        if not prefix:
            return ObjectPage([], [f"{number:03}/" for number in range(FOLDERS)], "")
        return ObjectPage([ListedObject(f"{prefix}a", 1, 1, 0, "")], [], "")


def test_the_work_for_a_folder_does_not_grow_with_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def size(entries: Any) -> int:
        measured.append(1)
        return entries.__len__()  # type: ignore[no-any-return]

    monkeypatch.setattr(objects, "len", size, raising=False)
    with ThreadPoolExecutor(1) as pool:
        scans = FolderScans(OneInEach(), "", pool)  # type: ignore[arg-type]
        names = [entry.name for entry in scans.scan("")]
        assert [scans.scan(name)[0].name for name in names] == ["a"] * FOLDERS
    assert sum(measured) < 20 * FOLDERS


def test_folders_are_forgotten_beyond_a_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_MOST_HELD", 10)
    with ThreadPoolExecutor(1) as pool:
        scans = FolderScans(OneInEach(), "", pool)  # type: ignore[arg-type]
        for name in [*(f"{number:03}" for number in range(30)), "000"]:
            scans.scan(name)
    assert list(scans._remembered) == [*(f"{number:03}" for number in range(21, 30)), "000"]
