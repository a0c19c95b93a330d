"""Where the files of an archive begin: in its root, or in the folder that holds all of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.data.source_trees import no_progress
from tpuctl.data.archives.only_archive import archive_tree
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def zipped(folder: Path, *names: str) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w") as file:
        for name in names:
            file.writestr(name, "x")
    return folder / "a.zip"


@pytest.mark.parametrize(
    ("names", "root"),
    [
        (("pets/cat/1", "pets/dog/1"), "/pets"),
        (("a/b/cat/1", "a/b/dog/1"), "/a/b"),
        (("a/b/cat/1", "a/b/dog/1", "a/readme"), "/a"),
        (("pets/cat/1", "readme"), ""),
        (("cat/1", "dog/1"), ""),
        (("pets/1", "pets/2"), ""),
        (("train/cat/1", "train/dog/1"), ""),
        (("Test/cat/1", "Test/dog/1"), ""),
        (("only",), ""),
    ],
)
def test_a_folder_that_holds_all_others_is_the_root(
    tmp_path: Path, names: tuple[str, ...], root: str
) -> None:
    file = zipped(tmp_path, *names)
    assert str(archive_tree(LocalTree.at(file), no_progress)) == f"{file}{root}"


def test_an_archive_without_files_is_refused(tmp_path: Path) -> None:
    file = zipped(tmp_path)
    with pytest.raises(UsageError) as refused:
        archive_tree(LocalTree.at(file), no_progress)
    assert refused.value.message == f"'{file}' holds no files."
    assert refused.value.hint == "Give an archive with some."
    assert refused.value.facts == {"file": "a.zip"}


def test_an_archive_that_is_gone_cannot_be_read(tmp_path: Path) -> None:
    tree = LocalTree.at(zipped(tmp_path, "x"))
    (tmp_path / "a.zip").unlink()
    with pytest.raises(UsageError, match=r"^Cannot read 'a\.zip': No such file\.$"):
        archive_tree(tree, no_progress)
