"""Lists of files: class folders, files by their paths, what was written since, and what is read together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.data.source_trees import Tree as MakeTree
from tpuctl.data.files import listing
from tpuctl.data.files.listing import ClassFolders, Folder, Listing, PathIndex, list_class_folders, read_spans
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


def refused(root: Path) -> str:
    with pytest.raises(UsageError) as caught:
        list_class_folders(LocalTree(root))
    assert caught.value.hint
    return caught.value.message


def keys(tree: ClassFolders) -> list[str]:
    return [tree.files.key(index) for index in range(len(tree.files))]


def splits(tree: ClassFolders) -> dict[str, str]:
    folders = tree.files.folders
    return {key: folders[tree.files.folder_of(index)].split for index, key in enumerate(keys(tree))}


def bad(root: Path) -> str:
    (only,) = list_class_folders(LocalTree(root)).bad
    return str(only)


def test_classes_are_the_sorted_folders_and_files_come_in_order(tree: MakeTree) -> None:
    listed = list_class_folders(LocalTree(tree({"dog": 1, "cat": 2})))
    assert listed.classes == ("cat", "dog")
    assert keys(listed) == ["cat/0.png", "cat/1.png", "dog/0.png"]
    assert set(splits(listed).values()) == {""}


def test_split_folders_above_are_the_splits_and_share_the_classes(tree: MakeTree) -> None:
    listed = list_class_folders(
        LocalTree(tree({"train/dog": 1, "train/cat": 1, "val/cat": 1, "Test/emu": 1}))
    )
    assert listed.classes == ("cat", "dog", "emu")
    assert splits(listed) == {
        "Test/emu/0.png": "test",
        "train/cat/0.png": "train",
        "train/dog/0.png": "train",
        "val/cat/0.png": "validation",
    }


def test_a_class_may_be_called_train_among_others(tree: MakeTree) -> None:
    assert list_class_folders(LocalTree(tree({"train": 1, "bus": 1}))).classes == ("bus", "train")


def test_hidden_files_and_litter_are_passed_over(tree: MakeTree) -> None:
    root = tree({"cat": 1})
    for name in (".DS_Store", "cat/.0.png.swp", "cat/Thumbs.db", "desktop.ini"):
        (root / name).write_text("litter")
    (root / ".git").mkdir()
    assert keys(list_class_folders(LocalTree(root))) == ["cat/0.png"]


@pytest.mark.parametrize(
    "name",
    [
        "Thumbs.db",
        "ehthumbs.db",
        "Desktop.ini",
        "__MACOSX/._0.png",
        "@eaDir/0.png",
        "cat/@eaDir/0.png",
        "Icon\r",
    ],
)
def test_what_systems_and_drives_leave_is_passed_over(tree: MakeTree, name: str) -> None:
    root = tree({"cat": 1})
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"no image")
    listed = list_class_folders(LocalTree(root))
    assert (listed.classes, keys(listed), list(listed.bad)) == (("cat",), ["cat/0.png"], [])


def test_an_empty_class_folder_is_named(tree: MakeTree) -> None:
    root = tree({"train/cat": 1})
    (root / "train" / "dog").mkdir()
    assert "'train/dog' is empty" in bad(root)


def test_a_folder_without_classes_is_named(tree: MakeTree, tmp_path: Path) -> None:
    assert f"no class folders in '{tmp_path}'" in refused(tmp_path)
    root = tree({"train/cat": 1})
    (root / "test").mkdir()
    assert f"no class folders in '{root / 'test'}'" in refused(root)


@pytest.mark.parametrize("loose", ["README.md", "train/1.png"])
def test_a_file_outside_the_class_folders_is_named(tree: MakeTree, loose: str) -> None:
    root = tree({"train/cat": 1})
    (root / loose).write_text("")
    assert f"'{loose}' is in no class folder" in bad(root)


def test_split_folders_that_hold_images_directly_are_not_taken_for_classes(tree: MakeTree) -> None:
    assert "'test/0.png' is in no class folder" in refused(tree({"train": 1, "test": 1}))


def test_a_class_beside_split_folders_is_named(tree: MakeTree) -> None:
    assert "'cat' lies beside the split folder 'train'" in refused(tree({"train/cat": 1, "cat": 1}))


def test_two_folders_for_one_split_are_refused(tree: MakeTree) -> None:
    error = refused(tree({"val/cat": 1, "validation/cat": 1}))
    assert "'val' is not the only folder of the split 'validation'" in error


def test_a_folder_inside_a_class_is_named(tree: MakeTree) -> None:
    assert "'cat/tabby' lies inside a class folder" in bad(tree({"cat": 1, "cat/tabby": 1}))


def test_a_link_that_leaves_the_source_is_bad(tree: MakeTree, tmp_path: Path) -> None:
    root = tree({"cat": 1})
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"")
    (root / "cat" / "link.png").symlink_to(secret)
    assert "'cat/link.png' is a link that leaves the source" in bad(root)


def test_a_linked_class_folder_that_leaves_the_source_is_bad(tree: MakeTree, tmp_path: Path) -> None:
    root = tree({"cat": 1})
    (tmp_path / "elsewhere").mkdir()
    (root / "dog").symlink_to(tmp_path / "elsewhere")
    assert "'dog' is a link that leaves the source" in bad(root)


@pytest.mark.parametrize("target", ["gone.png", "link.png"])
def test_a_link_that_leads_nowhere_is_named(tree: MakeTree, target: str) -> None:
    root = tree({"cat": 1})
    (root / "cat" / "link.png").symlink_to(target)
    assert "'cat/link.png' is a link that leads nowhere" in bad(root)


def test_a_link_inside_the_source_and_a_linked_source_are_fine(tree: MakeTree, tmp_path: Path) -> None:
    root = tree({"cat": 1})
    (root / "cat" / "again.png").symlink_to("0.png")
    (tmp_path / "shortcut").symlink_to(root)
    assert keys(list_class_folders(LocalTree(tmp_path / "shortcut"))) == ["cat/0.png", "cat/again.png"]


def test_a_pipe_is_refused_and_not_opened(tree: MakeTree) -> None:
    root = tree({"cat": 1})
    os.mkfifo(root / "cat" / "pipe.png")
    assert "'cat/pipe.png' lies inside a class folder and is not a file" in bad(root)


@pytest.mark.parametrize("name", ["a\u202fb", "a\u00a0b", "\U0001f469\u200d\U0001f4bb"])
def test_a_class_may_have_any_name_that_is_one_line(tree: MakeTree, name: str) -> None:
    assert list_class_folders(LocalTree(tree({name: 1}))).classes == (name,)


@pytest.mark.parametrize(
    "name", [" cat", "cat\ndog", "cat\u202f", "cat\u2028dog", "cat\x85dog", "cat\x1bdog"]
)
def test_a_class_name_that_the_labels_file_cannot_hold_is_bad(tree: MakeTree, name: str) -> None:
    assert "blanks around its name" in bad(tree({name: 1}))


def test_a_file_name_that_is_not_text_is_bad(tree: MakeTree) -> None:
    root = tree({"cat": 1})
    try:
        (root / "cat" / os.fsdecode(b"\xff.png")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert r"'cat/\udcff.png' has a name that is not UTF-8" in bad(root)


KEYS = ["bb", "a", "cc", "bb", "dd", "eee", "bb", "cc"]


@pytest.fixture(params=[hash, len, lambda key: -len(key), lambda key: 0])
def _hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash by the length of a key, or not at all, so that different keys meet."""
    monkeypatch.setattr(listing, "hash", request.param, raising=False)


@pytest.mark.usefixtures("_hashes")
class TestIndex:
    @pytest.mark.parametrize(
        ("key", "numbers"),
        [("bb", [0, 3, 6]), ("a", [1]), ("cc", [2, 7]), ("dd", [4]), ("eee", [5]), ("zz", []), ("ffff", [])],
    )
    def test_every_file_of_a_path_is_found_in_order(self, key: str, numbers: list[int]) -> None:
        index = PathIndex(len(KEYS), KEYS.__getitem__)
        assert list(index.find(key)) == numbers
        assert index.first(key) == next(iter(numbers), None)

    def test_files_whose_path_an_earlier_one_has_are_repeats(self) -> None:
        assert sorted(PathIndex(len(KEYS), KEYS.__getitem__).repeats()) == [3, 6, 7]

    @pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"], ["aa", "bb", "cc"]])
    def test_different_paths_have_no_repeats(self, keys: list[str]) -> None:
        index = PathIndex(len(keys), keys.__getitem__)
        assert list(index.repeats()) == []
        assert index.first("none") is None


CONTENT = bytes(index % 251 for index in range(3 << 20))
GAP, PIECE = 4096, 1 << 20


@pytest.mark.parametrize(
    ("spans", "reads"),
    [
        ([(5, 9)], [(5, 4)]),
        ([(0, 4), (4, 8), (8, 9)], [(0, 9)]),
        ([(0, 10), (10 + GAP, 20 + GAP)], [(0, 20 + GAP)]),
        ([(0, 10), (11 + GAP, 20 + GAP)], [(0, 10), (11 + GAP, 9)]),
        ([(PIECE - 9, PIECE - 1), (PIECE - 1, PIECE + 3)], [(PIECE - 9, 12)]),
        ([(PIECE - 9, PIECE), (PIECE, PIECE + 3)], [(PIECE - 9, 9), (PIECE, 3)]),
        ([(0, 100), (10, 20), (30, 40)], [(0, 100)]),
        ([(0, 4), (0, 4)], [(0, 4)]),
        ([(0, 0), (0, 0), (1, 1)], [(0, 1)]),
        ([(0, 9), (9000, 9001), (9001, 9009), (20_000, 20_001)], [(0, 9), (9000, 9), (20_000, 1)]),
    ],
)
def test_parts_that_lie_close_together_are_one_read(
    spans: list[tuple[int, int]], reads: list[tuple[int, int]]
) -> None:
    made: list[tuple[int, int]] = []

    def read(at: int, size: int) -> bytes:
        made.append((at, size))
        return CONTENT[at : at + size]

    assert read_spans(read, np.array(spans, np.int64)) == [CONTENT[begin:end] for begin, end in spans]
    assert made == reads


def test_parts_of_a_file_that_has_become_shorter_are_shorter() -> None:
    spans = np.array([(0, 4), (4, 8), (8, 12)], np.int64)
    assert read_spans(lambda at, size: b"012345"[at : at + size], spans) == [b"0123", b"45", b""]
