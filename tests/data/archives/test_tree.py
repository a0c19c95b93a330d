"""A source in an archive is the source that its folder is."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
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
from tpuctl.errors import ConfigError, UsageError

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


def zstd(path: Path) -> Path:
    """Pack a file by Zstandard beside it, in two frames, as `zstd` of several threads does."""
    data = path.read_bytes()
    packed = b""
    for part in (data[: len(data) // 2], data[len(data) // 2 :]):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(part)
        packed += sink.getvalue().to_pybytes()
    target = path.with_name(f"{path.name}.zst")
    target.write_bytes(packed)
    return target


def test_an_archive_packed_by_zstandard_is_read(tree: Tree) -> None:
    root = tree({"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    assert produce(plan(zstd(packed(root, "tar")), name="pets")) == produce(plan(root, name="pets"))


@pytest.mark.parametrize("keep", [0, 3, 100, -40])
def test_a_damaged_archive_packed_by_zstandard_is_named(tree: Tree, keep: int) -> None:
    file = zstd(packed(tree({"cat": 2}), "tar"))
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(
        UsageError, match=r"'packed\.tar\.zst' (is a damaged archive|holds no files)|holds no"
    ):
        read(file)


def test_zstandard_without_its_library_is_said(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    file = zstd(packed(tree({"cat": 2}), "tar"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert caught.value.message == "Reading .tar.zst needs pyarrow, which is not installed."
    assert caught.value.hint == "Install it: pip install pyarrow."
