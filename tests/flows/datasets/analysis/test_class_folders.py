"""Folders of classes: named as they are if a disk can have that name, and no two alike."""

from __future__ import annotations

import pytest

from tpuctl.data.schema.features import Label, Text
from tpuctl.flows.datasets.analysis import ClassFolders


def folders(*classes: str) -> list[str]:
    """Return the folder of each class of a label."""
    named = ClassFolders({"text": Text(), "label": Label(classes)})
    return ["/".join(named.parts({"label": [number]})) for number in range(len(classes))]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("cat", "cat"), ("Katze groß", "Katze groß"), ("a-b_c.d", "a-b_c.d"), ("a/b", "a_b"), ("a:b", "a_b"),
        ("..", "_"), (".hidden", "_hidden"), ("a.", "a_"), ("a. ", "a_"), (" a", " a"), ("", "0"),
        ("tpuctl.toml", "0"), ("y" * 50, "y" * 50), ("y" * 51, "y" * 50),
    ],
)  # fmt: skip
def test_a_class_has_a_folder_of_its_name_as_far_as_a_disk_can(name: str, folder: str) -> None:
    assert folders(name) == [folder]


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        (("a", "A"), ["a", "A-1"]),
        (("a?", "a!", "a_"), ["a_", "a_-1", "a_-2"]),
        (("a?", "a_-1", "a!", "a_"), ["a_", "a_-1", "a_-2", "a_-3"]),
        (("1", ""), ["1", "1-1"]),
        (("ﬁ", "fi"), ["ﬁ", "fi-1"]),
    ],
)
def test_of_names_that_are_alike_the_later_has_its_number(classes: tuple[str, ...], named: list[str]) -> None:
    assert folders(*classes) == named


def test_a_class_without_a_name_has_its_number() -> None:
    named = ClassFolders({"label": Label(("7",))})
    assert named.parts({"label": [9]}) == ("9",)
    assert named.parts({"label": [7]}) == ("7-7",), "class 0 has this name"
    assert named.parts({"label": [9]}) == ("9",)


@pytest.mark.parametrize("values", [{}, {"label": []}, {"label": [b"cat"]}, {"other": [1]}])
def test_a_record_without_a_class_is_in_no_folder(values: dict[str, list[int | bytes]]) -> None:
    named = ClassFolders({"label": Label(("cat",)), "other": Text()})
    assert named.parts(values) == ()


def test_of_several_labels_the_first_that_a_record_has_decides() -> None:
    named = ClassFolders({"kind": Label(("cat", "dog")), "age": Label(("old", "cat"))})
    assert named.parts({"kind": [1], "age": [0]}) == ("dog",)
    assert named.parts({"age": [1]}) == ("cat-1",)
