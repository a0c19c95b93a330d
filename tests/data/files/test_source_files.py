"""The files of a source of one kind, and the split that each name says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpuctl.data.files.source_files import chosen_files, every_file, list_files, split_of, words
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"), ("TRAIN-2.csv", "train"), ("t10k-images", "test"), ("x_test.npy", "test"),
        ("valid.csv", "validation"), ("dev.jsonl", "validation"), ("rows.csv", ""), ("trainer.csv", ""),
        ("train-test.csv", ""), ("test/train.csv", "test"), ("Test/rows.csv", "test"),
        ("train/test/rows.csv", "test"), ("train/pets/rows.csv", "train"), ("train--train.csv", "train"),
    ],
)  # fmt: skip
def test_the_innermost_folder_says_the_split_else_one_word_of_the_name(name: str, split: str) -> None:
    assert split_of(name) == split


def test_the_words_of_a_name_are_its_letters_and_digits() -> None:
    assert words("_X-Train (2).npy") == ["x", "train", "2", "npy"]


def make(root: Path, *names: str) -> LocalTree:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return LocalTree(root)


def test_files_are_listed_by_split_and_path(tmp_path: Path) -> None:
    names = ("train/b.csv", "train/a.CSV", "train/a.txt", "z/test.csv", "_old/train/c.csv", "train/_c.csv")
    tree = make(tmp_path, *names)
    files = list_files(tree, re.compile(r"\.csv$"))
    assert [(files.split(number), files.name(number)) for number in range(len(files))] == [
        ("test", "z/test.csv"), ("train", "train/a.CSV"), ("train", "train/b.csv"),
    ]  # fmt: skip
    assert files.size == len("z/test.csv") + 2 * len("train/a.csv")


def test_a_link_that_leaves_the_source_is_bad_and_the_rest_is_listed(tmp_path: Path) -> None:
    tree = make(tmp_path / "source", "train/b.csv")
    make(tmp_path, "outside.csv")
    (tmp_path / "source/train/a.csv").symlink_to(tmp_path / "outside.csv")
    files = list_files(tree, re.compile("csv"))
    assert [files.name(number) for number in range(len(files))] == ["train/b.csv"]
    assert [(bad.file, bad.why) for bad in files.bad] == [
        ("train/a.csv", f"is a link that leaves the source, to '{tmp_path}/outside.csv'")
    ]


def test_files_are_chosen_by_split_and_name(tmp_path: Path) -> None:
    tree = make(tmp_path, "b/1.csv", "a/2.csv")
    files = chosen_files(tree, [("train", "b/1.csv"), ("test", "a/2.csv")])
    assert [(files.split(number), files.name(number)) for number in range(2)] == [
        ("train", "b/1.csv"), ("test", "a/2.csv"),
    ]  # fmt: skip
    with files.stream(0) as stream:
        assert stream.read() == b"b/1.csv"
    files.check()


def test_a_chosen_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'3\.csv'.*No such file"):
        chosen_files(make(tmp_path, "a/2.csv"), [("test", "a/3.csv")])


def test_splits_in_some_names_only_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        list_files(make(tmp_path, "rows.csv", "test.csv", "train.csv"), re.compile("csv"))
    assert refused.value.message == "'rows.csv' is in no split, and 'train.csv' is in the split 'train'."
    assert (
        refused.value.hint == "Name all files after their split, such as train-2.csv and test.csv, or none."
    )


@pytest.mark.parametrize("names", [("rows.csv", "more.csv"), ("test.csv", "train.csv"), ("rows.csv",)])
def test_splits_in_all_names_or_in_none_are_taken(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert len(list_files(make(tmp_path, *names), re.compile("csv"))) == len(names)


def test_a_folder_without_a_file_of_the_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        list_files(make(tmp_path, "rows.txt"), re.compile("csv"))
    assert refused.value.message == f"There is no file of this format in '{tmp_path}'."
    assert refused.value.hint == "Check the path, and the names' endings."


def test_every_file_is_in_no_split(tmp_path: Path) -> None:
    files = every_file(make(tmp_path, "train/b.csv", "a.csv", "test/c.csv", "d.txt"), re.compile("csv"))
    assert [(files.split(number), files.name(number)) for number in range(len(files))] == [
        ("", "a.csv"), ("", "test/c.csv"), ("", "train/b.csv"),
    ]  # fmt: skip
