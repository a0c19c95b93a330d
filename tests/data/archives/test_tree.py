"""A source in archives is what its folder is: in one archive or several, wherever their files begin."""

from __future__ import annotations

import io
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.data.source_trees import Tree, examples, no_progress, opened, produce, write_image
from tpuctl.data.archives.only_archive import archive_tree
from tpuctl.data.archives.tree import ArchiveTree
from tpuctl.data.files.source_files import list_files
from tpuctl.data.options import Options
from tpuctl.data.plan import plan
from tpuctl.data.source import Source
from tpuctl.data.sources.annotated.webdataset import JoinedTree
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import LocalTree
from tpuctl.data.trees.tree import Entry, ListedFile
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


def pack(path: Path, **members: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pack(tmp_path / "root/a.tar", one=b"of a", deep__two=b"deep in a")
    pack(tmp_path / "root/more/b.tar", one=b"of b")
    return tmp_path / "root"


@pytest.fixture
def joined(root: Path) -> JoinedTree:
    return JoinedTree.of(list_files(LocalTree.at(root), re.compile(r"\.tar$")), no_progress)


def listed(joined: JoinedTree, path: str) -> ListedFile:
    entry = joined.look(path)
    assert entry is not None
    return ListedFile(path, entry.size, entry.stamp)


def test_archives_are_folders_of_the_root(joined: JoinedTree, root: Path) -> None:
    assert (joined.name, str(joined), joined.only, joined.is_remote) == ("root", str(root), "", False)
    assert joined.scan("") == [Entry("a.tar", "folder"), Entry("more/b.tar", "folder")]
    assert [entry.name for entry in joined.scan("a.tar")] == ["deep", "one"]
    assert [entry.name for entry in joined.scan("a.tar/deep")] == ["two"]
    assert joined.look("a.tar/deep") == Entry("deep", "folder")
    assert joined.look("more/b.tar/two") is None


@pytest.mark.parametrize("path", ["c.tar/one", "more/one", "one"])
def test_a_path_into_no_archive_is_not_there(joined: JoinedTree, path: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        joined.look(path)
    assert (missing.value.errno, missing.value.filename) == (2, path)


def test_members_are_read_of_their_archives_in_the_order_of_the_list(joined: JoinedTree) -> None:
    paths = ["a.tar/one", "more/b.tar/one", "a.tar/deep/two", "a.tar/one"]
    files = [listed(joined, path) for path in paths]
    contents = [b"of a", b"of b", b"deep in a", b"of a"]
    assert [joined.read(file) for file in files] == contents
    assert list(joined.read_each(files)) == contents
    assert list(joined.read_heads(files, 3)) == [content[:3] for content in contents]
    for file, content in zip(files, contents, strict=True):
        ranges = joined.open(file)
        assert ranges.read(1, 3) == content[1:4]
        ranges.close()
        with joined.stream(file) as stream:
            assert stream.read() == content
        assert joined.local_path(file) is None
        joined.check(file)


def test_an_archive_is_a_tree_of_its_own(joined: JoinedTree) -> None:
    assert [entry.name for entry in joined.below("a.tar").scan("")] == ["deep", "one"]
    assert [entry.name for entry in joined.below("a.tar/deep").scan("")] == ["two"]


def test_it_is_listed_again_unless_an_archive_has_changed(joined: JoinedTree, root: Path) -> None:
    file = listed(joined, "a.tar/one")
    assert joined.again().read(file) == b"of a"
    pack(root / "c.tar", one=b"of c")
    with pytest.raises(UsageError, match=r"'c\.tar' is new"):
        joined.again()
    (root / "c.tar").unlink()
    pack(root / "a.tar", one=b"of another size", three=b"")
    with pytest.raises(UsageError, match=r"'a\.tar' has changed"):
        joined.again()
    with pytest.raises(UsageError, match="has changed"):
        joined.check(file)
    joined.check(listed(joined, "more/b.tar/one"))


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
