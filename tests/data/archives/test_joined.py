"""Several archives are one tree: each is a folder, and its members are read in the order of a list."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from tests.data.source_trees import no_progress
from tpuctl.data.files.source_files import list_files
from tpuctl.data.sources.annotated.webdataset import JoinedTree
from tpuctl.data.trees.local import LocalTree
from tpuctl.data.trees.tree import Entry, ListedFile
from tpuctl.errors import UsageError


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
