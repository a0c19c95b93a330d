"""A source in an archive is the source that its folder is."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.source_trees import Tree, examples, no_progress, opened, produce, write_image
from tpuctl.data.archives.only_archive import archive_tree
from tpuctl.data.archives.tree import ArchiveTree
from tpuctl.data.options import Options
from tpuctl.data.plan import plan
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import LocalTree
from tpuctl.data.trees.tree import ListedFile
from tpuctl.errors import UsageError

FORMATS = {"tar": ".tar", "gztar": ".tar.gz", "zip": ".zip"}


def read(path: Path) -> Source:
    return opened(open_source(path, None, Options(), no_progress))


def archive(path: Path) -> ArchiveTree:
    return archive_tree(LocalTree.at(path), no_progress)


def packed(root: Path, kind: str, base: str = ".") -> Path:
    """Pack a folder, as shutil does."""
    return Path(
        shutil.make_archive(str(root.parent / "packed"), kind, root.parent if base != "." else root, base)
    )


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_dataset_of_an_archive_is_that_of_its_folder(tree: Tree, kind: str, wrapped: bool) -> None:
    root = tree({"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    file = packed(root, kind, root.name if wrapped else ".")
    assert produce(plan(file, name="pets")) == produce(plan(root, name="pets"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_in_an_archive_is_read(tmp_path: Path, kind: str) -> None:
    rows = "".join(f"{number},text {number}\n" for number in range(3000))
    (tmp_path / "people" / "data").mkdir(parents=True)
    (tmp_path / "people" / "data" / "people.csv").write_text(f"age,name\n{rows}")
    source = read(packed(tmp_path / "people", kind))
    assert source.kind == "csv"
    assert examples(source)[2999] == {"age": [2999], "name": [b"text 2999"]}


def test_heads_ranges_and_streams_are_those_of_the_file(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(1 << 20) * 9
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("folder/stored", content)
        file.writestr("folder/packed", content[: 1 << 20], zipfile.ZIP_DEFLATED)
        file.writestr("folder/large", content, zipfile.ZIP_DEFLATED)
        file.writestr("folder/small", content[:9], zipfile.ZIP_BZIP2)
    packed_tree = archive(tmp_path / "a.zip")
    files = [
        ListedFile(f"folder/{entry.name}", entry.size, entry.stamp) for entry in packed_tree.scan("folder")
    ]
    assert [file.path for file in files] == ["folder/large", "folder/packed", "folder/small", "folder/stored"]
    assert list(packed_tree.read_heads(files, 5)) == [content[:5]] * 4
    assert list(packed_tree.read_each(files)) == [content, content[: 1 << 20], content[:9], content]
    for listed in files:
        ranges = packed_tree.open(listed)
        assert ranges.read(listed.size - 3, 10) == content[: listed.size][-3:]
        ranges.close()
        with packed_tree.stream(listed) as stream:
            stream.seek(3)
            assert stream.read(6) == content[3:9]


def test_an_archive_that_changes_under_way_is_named(tree: Tree) -> None:
    root = tree({"cat": 2})
    file = packed(root, "tar")
    planned = plan(file, name="pets")
    opened(planned.source)
    write_image(root / "cat" / "2.png", shade=3)
    packed(root, "tar")
    with pytest.raises(UsageError, match=r"'packed\.tar' has changed"):
        planned.source.check()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_empty_archive_is_an_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no files"):
        read(packed(tmp_path / "empty", kind))
