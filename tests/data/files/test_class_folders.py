from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.data.source_trees import Tree as MakeTree
from tpuctl.data.files.listing import ClassFolders, list_class_folders
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


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
