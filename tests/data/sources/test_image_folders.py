from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.source_trees import Tree, examples, items, no_progress, opened, png, write_image
from tpuctl.data.images.header import inspect_image
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.schema.features import Label
from tpuctl.data.source import Observations
from tpuctl.data.sources.folders import ImageSource, read_images
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def read(root: Path, resize: tuple[int, int] | None = None) -> ImageSource:
    source = read_images(LocalTree(root), Options(resize=resize), no_progress)
    opened(source)
    return source


def image_feature(root: Path) -> ImageFeature:
    source, observations = read(root), Observations()
    list(source.read(np.arange(sum(part.records for part in source.parts)), observations))
    feature = source.final_features(observations)["image"]
    assert isinstance(feature, ImageFeature)
    return feature


def bad(root: Path) -> str:
    (only,) = (record for record in items(read(root)) if isinstance(record, BadRecord))
    return str(only)


def test_each_record_holds_the_file_as_it_is_and_the_index_of_its_class(tree: Tree) -> None:
    root = tree({"cat": 2, "dog": 1})
    source = read(root)
    assert examples(source) == [
        {"image": [(root / key).read_bytes()], "label": [label]}
        for key, label in {"cat/0.png": 0, "cat/1.png": 0, "dog/0.png": 1}.items()
    ]
    assert source.features["label"] == Label(("cat", "dog"))
    assert source.labels.tolist() == [0, 0, 1]


def test_records_come_in_the_order_they_are_asked_for(tree: Tree) -> None:
    source = read(tree({"cat": 3, "dog": 2}))
    assert items(source, 4, 0, 2) == [items(source)[index] for index in (4, 0, 2)]


def test_the_sizes_are_known_before_a_file_is_opened(tree: Tree, tmp_path: Path) -> None:
    root = tree(
        {f"train/{index:03}": 1 for index in range(130)} | {"test/000": 2}
    )  # labels of one byte and two
    for index, size in enumerate((100, 20_000, 3_000_000)):  # lengths of one byte to four
        (root / "test" / "000" / f"{index}.png").write_bytes(png(size))
    source = read(root)
    assert source.exact
    sizes = [len(record) for record in items(source)]
    assert [(part.split, part.records, part.size) for part in source.parts] == [
        ("test", 3, sum(sizes[:3])),
        ("train", 130, sum(sizes[3:])),
    ]


def test_a_dimension_that_varies_is_open_in_the_shape(tree: Tree) -> None:
    root = tree({"cat": 1})
    assert image_feature(root) == ImageFeature((6, 8, 3), "uint8", "png")
    write_image(root / "cat" / "wide.png", size=(9, 6))
    assert image_feature(root) == ImageFeature((6, None, 3), "uint8", "png")
    write_image(root / "cat" / "high.jpg", size=(9, 7))
    assert image_feature(root) == ImageFeature((None, None, 3), "uint8", None)


def test_a_few_grey_images_get_the_channels_of_the_others(tree: Tree) -> None:
    root = tree({"cat": 3})
    write_image(root / "dog" / "grey.png", mode="L")
    write_image(root / "ant" / "first.png", mode="L")
    source, observations = read(root), Observations()
    records = list(source.read(np.arange(5), observations))
    assert not [record for record in records if isinstance(record, BadRecord)]
    shapes = [inspect_image(decode(record)["image"][0]).channels for record in records]  # type: ignore[arg-type]
    assert shapes == [3] * 5
    assert source.images is not None
    assert source.images.summary == "5 pictures: 3 RGB, 2 grey; 2 will be converted to 3 channels"


def test_the_first_file_does_not_decide_on_the_channels(tree: Tree) -> None:
    root = tree({"dog": 3})
    write_image(root / "ant" / "first.png", mode="L")
    assert image_feature(root).shape[2] == 3
    assert [record for record in items(read(root)) if isinstance(record, BadRecord)] == []


def test_a_bad_first_file_does_not_decide_on_the_channels(tree: Tree) -> None:
    root = tree({"cat": 2})
    (root / "cat" / "0.png").write_bytes(b"")
    assert bad(root) == "'cat/0.png' is empty"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello, I am a text\n", "is a text, not an image"),
        (b"GIF89a\1\0", "cannot be decoded"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded"),
    ],
)
def test_a_file_that_is_no_image_is_named(tree: Tree, content: bytes, reason: str) -> None:
    root = tree({"cat": 1, "dog": 1})
    (root / "cat" / "bad.png").write_bytes(content)
    assert bad(root).startswith(f"'cat/bad.png' {reason}")


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_truncated_image_is_named(tree: Tree, suffix: str, cut: int) -> None:
    root = tree({"cat": 1})
    file = write_image(root / "cat" / f"big{suffix}", size=(64, 64))
    file.write_bytes(file.read_bytes()[:-cut])
    assert bad(root).startswith(f"'cat/big{suffix}' cannot be decoded")


@pytest.mark.parametrize("distance", [60, 5], ids=["pixels", "checksum"])
def test_a_png_with_a_flipped_bit_is_named(tree: Tree, distance: int) -> None:
    root = tree({"cat": 1})
    file = write_image(root / "cat" / "big.png", size=(64, 64))
    data = bytearray(file.read_bytes())
    data[data.index(b"IEND") - distance] ^= 1  # the checksum of the pixels ends 4 bytes before
    file.write_bytes(data)
    assert bad(root).startswith("'cat/big.png' cannot be decoded")


def test_types_for_a_tree_of_images_are_refused(tree: Tree) -> None:
    with pytest.raises(UsageError, match="has the fields image and label"):
        read_images(LocalTree(tree({"cat": 1})), Options(label="class"), no_progress)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tree: Tree) -> None:
    root = tree({"cat": 1})
    (root / "cat" / "0.png").chmod(0)
    assert bad(root) == "'cat/0.png' cannot be read: Permission denied"


MODES = {
    "1": "png",
    "L": "png",
    "LA": "png",
    "P": "png",
    "RGB": "jpg",
    "RGBA": "png",
    "I;16": "png",
    "CMYK": "jpg",
}


@pytest.mark.parametrize(("mode", "suffix"), MODES.items(), ids=MODES)
def test_every_kind_of_image_is_resized_and_keeps_its_channels(
    tmp_path: Path, mode: str, suffix: str
) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    for index, size in enumerate(((40, 30), (5, 7), (300, 200))):
        Image.new(mode, size).save(tmp_path / "in" / "cat" / f"{index}.{suffix}")
    before = image_feature(tmp_path / "in")
    source, observations = read(tmp_path / "in", resize=(12, 16)), Observations()
    records = list(source.read(np.arange(3), observations))
    assert source.final_features(observations)["image"] == ImageFeature(
        (12, 16, before.shape[2]), before.dtype, before.encoding
    )
    assert records == list(source.read(np.arange(3), Observations()))
    assert not source.exact
    assert abs(source.parts[0].size - sum(map(len, records))) < 0.2 * source.parts[0].size
