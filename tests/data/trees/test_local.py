"""What a tree of this machine's disks tells of its files, and scans of its folders."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tpuctl.bucket_objects import ListedObject, ObjectPage
from tpuctl.data.trees import objects
from tpuctl.data.trees.local import LocalTree, modified
from tpuctl.data.trees.objects import FolderScans
from tpuctl.data.trees.tree import Entry, ListedFile
from tpuctl.errors import UsageError

TICK = 20_000_000
"""Nanoseconds within which two writes may have the same time."""


def listed(tree: LocalTree, path: str) -> ListedFile:
    entry = tree.look(path)
    assert entry
    return ListedFile(path, entry.size, entry.stamp)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "cat").mkdir()
    path = tmp_path / "cat/a"
    path.write_bytes(b"12345")
    return path


@pytest.mark.parametrize(
    ("age", "pauses"),
    [
        (0, [0.02]),
        (5_000_000, [0.015]),
        (TICK, [0.0]),
        (TICK + 1, []),
        (-1, []),  # from the future: no wait would help
    ],
)
def test_it_settles_when_no_write_can_get_the_newest_files_time(
    file: Path, age: int, pauses: list[float]
) -> None:
    newest, waits = modified(file.stat()), list[float]()
    LocalTree.at(file).settle(newest, waits.append, lambda: newest + age)
    assert waits == pytest.approx(pauses)


def test_a_scan_says_the_kind_size_and_time_of_each_entry_by_name(file: Path) -> None:
    root = file.parent
    (root / "sub").mkdir()
    (root / ".hidden").write_bytes(b"")
    os.mkfifo(root / "pipe")
    assert LocalTree(root).scan("") == [
        Entry("a", "file", 5, modified(file.stat())),
        Entry("pipe", "other"),
        Entry("sub", "folder"),
    ]
    assert [entry.name for entry in LocalTree(root.parent).scan("cat")] == ["a", "pipe", "sub"]


def test_a_link_that_leaves_the_tree_has_a_problem(file: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path.parent, file.with_name("up"))
    os.symlink("nowhere", file.with_name("lost"))
    os.symlink("a", file.with_name("same"))
    problems = {entry.name: entry.problem for entry in LocalTree(file.parent).scan("")}
    assert problems["up"] == f"is a link that leaves the source, to '{tmp_path.parent}'"
    assert problems["lost"] == "is a link that leads nowhere"
    assert problems["same"] == ""
    tree = LocalTree(file.parent)
    looked = {name: entry.problem for name in ("up", "lost", "same") if (entry := tree.look(name))}
    assert looked == {name: problems[name] for name in looked}
    assert tree.look("missing") is None


def test_what_lies_behind_a_link_that_leaves_the_tree_has_a_problem(file: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.symlink(file.parent, tmp_path / "source" / "cat")
    tree = LocalTree(tmp_path / "source")
    entry = tree.look("cat/a")
    assert entry
    assert (entry.kind, entry.problem) == ("other", "lies behind a link that leaves the source")
    assert tree.look("cat/b") is None


def test_a_link_is_read_where_the_user_names_it(file: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    os.symlink(file, tmp_path / "links" / "a.csv")
    tree = LocalTree.at(tmp_path / "links" / "a.csv")
    assert tree.look("a.csv") == Entry("a.csv", "file", 5, modified(file.stat()))
    assert tree.read(listed(tree, "a.csv")) == b"12345"


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "x" * 5000, "a/" * 3000])
def test_nothing_has_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert LocalTree(tmp_path).look(name) is None


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "features.json")
    entry = LocalTree(tmp_path).look("features.json")
    assert entry == Entry("features.json", "other", problem="is no regular file")


def test_links_in_a_circle_have_a_problem(file: Path, tmp_path: Path) -> None:
    (tmp_path / "dog").mkdir()
    os.symlink("..", file.with_name("up"))
    os.symlink("../dog", file.with_name("dog"))
    os.symlink("../cat", tmp_path / "dog" / "cat")
    tree = LocalTree(tmp_path)
    problems = {
        folder: {entry.name: entry.problem for entry in tree.scan(folder)} for folder in ("cat", "cat/dog")
    }
    circle = "is a link to a folder that it lies in"
    assert problems == {"cat": {"a": "", "dog": "", "up": circle}, "cat/dog": {"cat": circle}}


def test_a_file_can_be_read_whole_in_part_and_as_a_stream(file: Path) -> None:
    tree = LocalTree.at(file)
    whole = listed(tree, "a")
    assert (str(tree), tree.name, tree.only) == (str(file), "a", "a")
    assert tree.read(whole) == b"12345"
    assert list(tree.read_heads([whole, whole], 2)) == [b"12", b"12"]
    ranges = tree.open(whole)
    assert (ranges.read(1, 2), ranges.read(3, 10)) == (b"23", b"45")
    ranges.close()
    with tree.stream(whole) as stream:
        assert stream.read() == b"12345"


def test_a_file_that_cannot_be_read_gives_its_error_in_its_place(file: Path) -> None:
    tree = LocalTree(file.parent)
    first, second = tree.read_each([ListedFile("gone", 1, 1), listed(tree, "a")])
    assert isinstance(first, FileNotFoundError)
    assert second == b"12345"
    (error,) = tree.read_heads([ListedFile("gone", 1, 1)], 10)
    assert isinstance(error, FileNotFoundError)


def test_a_change_after_the_listing_is_noticed(file: Path) -> None:
    tree = LocalTree(file.parent)
    before = listed(tree, "a")
    tree.check(before)
    file.write_bytes(b"123456")
    for notice in (tree.check, tree.read):
        with pytest.raises(UsageError, match="'a' has changed"):
            notice(before)
    file.unlink()
    with pytest.raises(UsageError, match="'a' was removed"):
        tree.check(before)


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
