"""Tests that a list of files recognizes files that were written to since."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuctl.data.files.listing import Folder, Listing, list_class_folders
from tpuctl.data.files.source_files import list_files
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def listed(root: Path, *names: str) -> Listing:
    files = Listing(LocalTree(root))
    files.start(Folder("", "", ""))
    for name in names:
        entry = files.tree.look(name)
        assert entry
        files.add(entry)
    return files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    return path


def test_the_fingerprint_tells_apart_folders_whose_names_are_the_same_one_after_another(
    tmp_path: Path,
) -> None:
    fingerprints = set()
    for names in (("a", "bc"), ("ab", "c")):
        root = tmp_path / "-".join(names)
        for name in names:
            (root / name).mkdir(parents=True)
            (root / name / "1").write_bytes(b"1")
        fingerprints.add(list_class_folders(LocalTree(root)).fingerprint)
    assert len(fingerprints) == 2


def test_an_empty_listing_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = list[int]()
    monkeypatch.setattr(LocalTree, "settle", lambda tree, stamp: newest.append(stamp))
    listed(tmp_path).wait_past_newest()
    assert newest == [0]


def test_a_file_of_the_same_size_that_was_written_after_the_wait_has_changed(file: Path) -> None:
    """Whatever the clock of the file system: this is what the wait is for."""
    files = listed(file.parent, "a")
    files.wait_past_newest()
    assert files.read(0) == b"12345"
    file.write_bytes(b"54321")
    with pytest.raises(UsageError, match="'a' has changed"):
        files.read(0)
    with pytest.raises(UsageError, match="'a' has changed"):
        files.check(listed(file.parent, "a"))


@pytest.mark.parametrize(
    "list_source",
    [
        pytest.param(lambda root: list_class_folders(LocalTree(root)), id="class folders"),
        pytest.param(lambda root: list_files(LocalTree(root), re.compile(".*")), id="files"),
        pytest.param(
            lambda root: list_files(LocalTree(root / "cat", "a.png"), re.compile(".*")), id="one file"
        ),
    ],
)
def test_every_way_to_list_a_source_waits_once_when_all_files_are_listed(
    tmp_path: Path, list_source: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: whether two writes really get the same time depends on the file system and the moment."""
    lengths = list[int]()
    monkeypatch.setattr(Listing, "wait_past_newest", lambda files: lengths.append(len(files)))
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/a.png").write_bytes(b"1")
    list_source(tmp_path)
    assert lengths == [1]


def test_a_file_that_was_replaced_by_an_older_one_has_changed(file: Path) -> None:
    other = file.with_name("b")
    other.write_bytes(b"54321")
    os.utime(other, ns=(0, 0))
    files = listed(file.parent, "a")
    files.wait_past_newest()
    other.replace(file)
    with pytest.raises(UsageError, match="'a' has changed"):
        files.read(0)


def test_a_later_listing_says_what_has_gone_and_what_is_new(file: Path) -> None:
    before = listed(file.parent, "a")
    before.check(listed(file.parent, "a"))
    file.with_name("b").write_bytes(b"")
    with pytest.raises(UsageError, match="'b' is new"):
        before.check(listed(file.parent, "a", "b"))
    with pytest.raises(UsageError, match="'a' was removed"):
        before.check(listed(file.parent, "b"))
