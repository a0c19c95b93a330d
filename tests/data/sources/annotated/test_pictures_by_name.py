"""Which file annotations mean by a name, and what is said where that is none or not sure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tpuctl.data.files.source_files import SourceFiles, list_files
from tpuctl.data.sources.annotated.coco import PicturesByName
from tpuctl.data.trees.local import LocalTree


@pytest.mark.parametrize(
    ("files", "name", "table", "found"),
    [
        (["a.png"], "a.png", "notes.json", "a.png"),
        (["images/a.png"], "a.png", "notes.json", "images/a.png"),
        (["images/a.png"], "images/a.png", "notes.json", "images/a.png"),
        (["images/a.png"], "./images/a.png", "notes.json", "images/a.png"),
        (["x/a.png", "y/a.png"], "y/a.png", "notes.json", "y/a.png"),
        (["x/a.png", "y/a.png"], "a.png", "y/notes.json", "y/a.png"),
        (["a.png", "x/a.png"], "a.png", "notes.json", "a.png"),
        (["Train2017/a.png", "val2017/a.png"], "a.png", "instances_train2017.json", "Train2017/a.png"),
        (["a.PNG"], "a.PNG", "notes.json", "a.PNG"),
        (["a.png"], "b.png", "notes.json", "is listed in 'notes.json', and is not there"),
        (["xa.png"], "a.png", "notes.json", "is listed in 'notes.json', and is not there"),
        (["a.txt"], "a.txt", "notes.json", "is listed in 'notes.json', and is not there"),
        (["x/a.png"], "y/a.png", "notes.json", "is listed in 'notes.json', and is not there"),
        (
            ["v/a.png", "x/a.png", "y/a.png", "z/a.png"], "a.png", "notes.json",
            "is listed in 'notes.json', and there are 'v/a.png', 'x/a.png', 'y/a.png'",
        ),
        (
            ["train/x/a.png", "train/y/a.png"], "a.png", "train.json",
            "is listed in 'train.json', and there are 'train/x/a.png', 'train/y/a.png'",
        ),
    ],
)  # fmt: skip
def test_a_name_is_that_of_the_nearest_file(
    tmp_path: Path, files: list[str], name: str, table: str, found: str
) -> None:
    listed = listed_files(tmp_path, files)
    answer = PicturesByName(listed, (".png",)).find(name, table)
    assert (listed.name(answer) if isinstance(answer, int) else answer) == found


def test_no_name_is_compared_with_all_files_of_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Annotations that name each of them took a time that grew with the square of their number."""
    count = 500
    listed = listed_files(tmp_path, [f"x/{number}/a.png" for number in range(count)])
    pictures, looked = PicturesByName(listed, (".png",)), 0
    name = type(listed).name

    def looking(files: SourceFiles, number: int) -> str:
        nonlocal looked
        looked += 1
        return name(files, number)

    monkeypatch.setattr(SourceFiles, "name", looking)
    for number in range(count):
        assert isinstance(pictures.find(f"{number}/a.png", "notes.json"), int)
        assert "there are" in str(pictures.find("a.png", "notes.json"))
    assert looked < 10 * count


def listed_files(folder: Path, names: Sequence[str]) -> SourceFiles:
    """Return empty files of these names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return list_files(LocalTree.at(folder), re.compile("a"))
