"""The field and the split that the name of an array says."""

from __future__ import annotations

import numpy as np
import pytest

from tpuctl.data.arrays import Array, NamedArray, pair
from tpuctl.errors import UsageError


def array(name: str, dtype: str = "int64", *shape: int) -> Array:
    return Array(name, 0, np.dtype(dtype), (5, *shape), lambda start, size: b"")


def blocks(*names: str, group: str = "", split: str = "") -> list[tuple[str, list[str]]]:
    """Return the splits and the fields of arrays of these names."""
    found = pair(NamedArray(group, split, name, array(name)) for name in names)
    return [(block.split, list(block.arrays)) for block in found]


@pytest.mark.parametrize(
    ("name", "split", "field"),
    [
        ("x", "", "x"), ("y", "", "label"), ("x_train", "train", "x"), ("y_train", "train", "label"),
        ("train_x", "train", "x"), ("test_labels", "test", "label"),
        ("val_targets", "validation", "label"), ("target", "", "label"), ("class", "", "label"),
        ("classes", "", "label"), ("labels", "", "label"), ("label", "", "label"), ("targets", "", "label"),
        ("data", "", "data"), ("img", "", "img"), ("imgs", "", "imgs"), ("image", "", "image"),
        ("images", "", "images"), ("input", "", "input"), ("inputs", "", "inputs"),
        ("image_size", "", "image_size"), ("size_image", "", "image"), ("weights", "", "weights"),
        ("sample_weights", "", "sample_weights"), ("train", "train", "value"), ("", "", "value"),
        ("points-idx2-short", "", "points"), ("train-images-idx3-ubyte", "train", "images"),
        ("train_test_x", "", "x"), ("a.npy", "", "a"), ("a-ubyte", "", "a"), ("a.idx", "", "a"),
        ("a.npz", "", "a"), ("a.gz", "", "a"),
    ],
)  # fmt: skip
def test_a_name_says_split_and_field(name: str, split: str, field: str) -> None:
    assert blocks(name) == [(split, [field])]


@pytest.mark.parametrize(
    ("dtype", "shape", "name", "field"),
    [
        ("uint8", (2, 3), "x", "image"), ("uint8", (2, 3), "train", "image"), ("uint8", (2, 3), "a", "a"),
        ("uint8", (2, 3, 3), "images", "image"), ("uint8", (2, 3, 1), "x", "image"),
        ("uint8", (2, 3, 4), "x", "image"), ("uint8", (2, 3, 2), "x", "x"), ("uint8", (2,), "x", "x"),
        ("uint8", (1, 2, 3, 3), "x", "x"), ("int8", (2, 3), "x", "x"), ("uint16", (2, 3), "train", "value"),
        ("uint8", (2, 3), "image_mask", "image"), ("uint8", (2, 3), "y", "label"),
    ],
)  # fmt: skip
def test_bytes_of_pictures_are_images(dtype: str, shape: tuple[int, ...], name: str, field: str) -> None:
    (block,) = pair([NamedArray("", "", name, array(name, dtype, *shape))])
    assert list(block.arrays) == [field]


def test_arrays_of_one_split_and_group_belong_together() -> None:
    assert blocks("y_test", "x_train", "x_test", "y_train") == [
        ("test", ["label", "x"]),
        ("train", ["x", "label"]),
    ]
    found = pair(NamedArray(group, "", "x", array("x")) for group in ("b", "a"))
    assert [(block.split, list(block.arrays)) for block in found] == [("", ["x"]), ("", ["x"])]


def test_the_split_of_a_folder_counts_more_than_a_name() -> None:
    assert blocks("x_test", "y", split="train") == [("train", ["x", "label"])]


def test_two_arrays_of_one_field_are_named() -> None:
    with pytest.raises(UsageError) as refused:
        blocks("x_train", "y_train", "targets_train")
    assert refused.value.message == (
        "'y_train' and 'targets_train' would both be the label of the same records."
    )


def test_a_name_without_a_split_among_others_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        blocks("x_train", "x", "x_test")
    assert refused.value.message == "The name of 'x' says no split, and others do."
    assert blocks("x", "y") == [("", ["x", "label"])]
