from __future__ import annotations

import os
from pathlib import Path

import pytest
from data_trees import Tree, write_image

from tpuctl.data.example import decode
from tpuctl.data.features import Image, Label
from tpuctl.data.images import read_images
from tpuctl.data.source import Source
from tpuctl.errors import UsageError


def read(root: Path) -> Source:
    return read_images(root, lambda done, total: None)


def refused(root: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(root)
    assert caught.value.hint
    return caught.value


def test_each_record_holds_the_file_as_it_is_and_the_index_of_its_class(tree: Tree) -> None:
    root = tree({"cat": 2, "dog": 1})
    source = read(root)
    examples = {record.key: decode(source.read(record)) for record in source.records}
    assert examples == {
        key: {"image": [(root / key).read_bytes()], "label": [label]}
        for key, label in {"cat/0.png": 0, "cat/1.png": 0, "dog/0.png": 1}.items()
    }
    assert source.features["label"] == Label(("cat", "dog"))


def test_progress_is_told_for_every_image(tree: Tree) -> None:
    told: list[tuple[int, int]] = []
    read_images(tree({"cat": 100}), lambda done, total: told.append((done, total)))
    assert told == [(index, 100) for index in range(1, 101)]


def test_a_dimension_that_varies_is_open_in_the_shape(tree: Tree) -> None:
    root = tree({"cat": 1})
    assert read(root).features["image"] == Image((6, 8, 3), "uint8", "png")
    write_image(root / "cat" / "wide.png", size=(9, 6))
    assert read(root).features["image"] == Image((6, None, 3), "uint8", "png")
    write_image(root / "cat" / "high.jpg", size=(9, 7))
    assert read(root).features["image"] == Image((None, None, 3), "uint8", None)


def test_images_of_different_channels_are_refused_with_both_names(tree: Tree) -> None:
    root = tree({"cat": 1})
    write_image(root / "dog" / "gray.png", mode="L")
    error = refused(root)
    assert error.message == "'dog/gray.png' has 1 channel of uint8, but 'cat/0.png' has 3 channels of uint8."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello, I am a text\n", "is not a PNG or JPEG image"),
        (b"GIF89a\1\0\1\0\0\0\0;", "is a GIF image, and PNG or JPEG is wanted"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded"),
    ],
)
def test_a_file_that_is_no_image_is_named(tree: Tree, content: bytes, reason: str) -> None:
    root = tree({"cat": 1, "dog": 1})
    (root / "cat" / "bad.png").write_bytes(content)
    assert refused(root).message.startswith(f"'cat/bad.png' {reason}")


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_truncated_image_is_named(tree: Tree, suffix: str, cut: int) -> None:
    root = tree({"cat": 1})
    file = write_image(root / "cat" / f"big{suffix}", size=(64, 64))
    file.write_bytes(file.read_bytes()[:-cut])
    assert refused(root).message.startswith(f"'cat/big{suffix}' cannot be decoded")


@pytest.mark.parametrize("distance", [60, 5], ids=["pixels", "checksum"])
def test_a_png_with_a_flipped_bit_is_named(tree: Tree, distance: int) -> None:
    root = tree({"cat": 1})
    file = write_image(root / "cat" / "big.png", size=(64, 64))
    data = bytearray(file.read_bytes())
    data[data.index(b"IEND") - distance] ^= 1  # the checksum of the pixels ends 4 bytes before
    file.write_bytes(data)
    assert refused(root).message.startswith("'cat/big.png' cannot be decoded")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tree: Tree) -> None:
    root = tree({"cat": 1})
    (root / "cat" / "0.png").chmod(0)
    assert refused(root).message == "Cannot read 'cat/0.png': Permission denied."
