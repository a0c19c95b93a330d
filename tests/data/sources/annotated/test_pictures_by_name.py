"""Which file annotations mean by a name, and what is said where that is none or not sure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpuctl.data.files.source_files import list_files
from tpuctl.data.sources.annotated.pictures_by_name import PicturesByName
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
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    listed = list_files(LocalTree.at(tmp_path), re.compile("a"))
    answer = PicturesByName(listed, (".png",)).find(name, table)
    assert (listed.name(answer) if isinstance(answer, int) else answer) == found
