"""Folders of images and of texts as sources, and one rule for images in files, columns and features."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.images.zoo import ZOO
from tests.data.source_trees import (
    Tree,
    examples,
    items,
    no_progress,
    only_bad,
    opened,
    png,
    produce,
    write_image,
)
from tpuctl.data.images.header import inspect_image
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.schema.features import Label, Tensor, Text
from tpuctl.data.source import Observations, Source
from tpuctl.data.sources.folders import ImageSource, read_images, read_text_files
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
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


def write(root: Path, texts: dict[str, str | bytes]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def read_texts(root: Path) -> Source:
    return opened(read_text_files(LocalTree(root), Options(), no_progress))


REVIEWS: dict[str, str | bytes] = {
    "train/pos/1.txt": "great\r\nfilm\n",
    "train/neg/1.txt": "größer Mist",
    "test/pos/1.txt": "\ufeffgood",
}


def test_each_file_is_a_record_of_its_text_and_class(tmp_path: Path) -> None:
    source = read_texts(write(tmp_path, REVIEWS))
    assert source.features == {"text": Text(), "label": Label(("neg", "pos"))}
    assert examples(source) == [
        {"label": [1], "text": [b"good"]},
        {"label": [0], "text": ["größer Mist".encode()]},
        {"label": [1], "text": [b"great\r\nfilm\n"]},
    ]
    assert [(part.split, part.records) for part in source.parts] == [("test", 1), ("train", 2)]
    assert sum(part.size for part in source.parts) == pytest.approx(
        sum(len(record) for record in items(source) if isinstance(record, bytes)), rel=0.1
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "'pos/2.txt' is empty"), (b"\nna\xefve", "line 2 of 'pos/2.txt' is not UTF-8 text")],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert only_bad(read_texts(write(tmp_path, {"pos/1.txt": "x", "pos/2.txt": content}))) == message


def test_a_link_that_leaves_the_source_and_an_empty_class_are_bad(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {"pos/1.txt": "x"})
    (root / "neg").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "pos" / "2.txt").symlink_to(tmp_path / "secret.txt")
    assert [str(record).partition(", to")[0] for record in read_texts(root).bad] == [
        "'neg' is empty",
        "'pos/2.txt' is a link that leaves the source",
    ]


def test_a_file_that_changes_under_way_is_named(tmp_path: Path) -> None:
    source = read_texts(write(tmp_path, {"pos/1.txt": "x"}))
    write(tmp_path, {"pos/1.txt": "y"})
    with pytest.raises(UsageError, match=r"'pos/1.txt' has changed"):
        items(source)
    with pytest.raises(UsageError, match=r"'pos/1.txt' has changed"):
        source.check()


def test_types_are_refused_for_texts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has the fields text and label"):
        read_text_files(LocalTree(tmp_path), Options(label="x"), no_progress)


def test_a_folder_of_texts_is_told_from_one_of_images_and_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (plan(write(tmp_path / place, REVIEWS), name="reviews") for place in ("one", "two"))
    assert first.source.kind == "text"
    assert produce(first) == produce(second)


def test_empty_class_folders_alone_are_bad(tmp_path: Path) -> None:
    (tmp_path / "only/empty").mkdir(parents=True)
    source = read_texts(tmp_path / "only")
    assert [str(record) for record in source.bad] == ["'empty' is empty"]
    assert source.parts == ()


MIXED = ["grey.jpg", "photograph.jpg", "drawing.png", "clear.webp", "photograph.jpg", "truncated.jpg"]
SUMMARY = (
    "6 pictures: 3 RGB, 1 RGBA, 1 grey; 2 will be converted: 2 to 3 channels, 1 from WebP; "
    "1 cannot be used: 1 cannot be decoded (it ends before its last marker)"
)


def in_parquet(root: Path, names: list[str]) -> Path:
    cells = [{"bytes": ZOO[name].make(), "path": name} for name in names]
    pq.write_table(pa.table({"image": cells, "n": list(range(len(names)))}), root / "pictures.parquet")
    return root / "pictures.parquet"


def in_records(root: Path, names: list[str]) -> Path:
    records = [encode({"image": ZOO[name].make(), "n": number}) for number, name in enumerate(names)]
    (root / "pictures.tfrecord").write_bytes(b"".join(map(frame, records)))
    return root / "pictures.tfrecord"


Writer = Callable[[Path, list[str]], Path]
WRITERS = pytest.mark.parametrize("write", [in_parquet, in_records])


def read_fields(path: Path, options: Options = Options()) -> Source:  # noqa: B008  frozen
    return opened(open_source(path, None, options, no_progress))


def images(source: Source) -> list[bytes]:
    return [value for example in examples(source) for value in example["image"] if isinstance(value, bytes)]


@WRITERS
def test_images_get_the_channels_of_most_and_the_first_does_not_decide(tmp_path: Path, write: Writer) -> None:
    source = read_fields(write(tmp_path, MIXED))
    assert source.features["image"] == ImageFeature((None, None, 3))
    assert source.images is not None
    assert source.images.summary == SUMMARY
    read_images = images(source)
    assert [inspect_image(image).channels for image in read_images] == [3] * 5
    assert [image == ZOO[name].make() for image, name in zip(read_images, MIXED, strict=False)] == [
        False, True, True, False, True,
    ]  # fmt: skip
    (bad,) = (record for record in items(source) if isinstance(record, BadRecord))
    assert "ends before its last marker" in str(bad)


@WRITERS
def test_a_user_chooses_the_channels_and_the_size(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path, MIXED[:-1])
    keep = images(read_fields(path, Options(channels="keep")))
    assert [inspect_image(image).channels for image in keep] == [1, 3, 3, 4, 3]
    resized = images(read_fields(path, Options(channels=1, resize=(8, 9))))
    assert {inspect_image(image)[:3] for image in resized} == {(8, 9, 1)}


@WRITERS
def test_half_of_the_values_as_images_make_images(tmp_path: Path, write: Writer) -> None:
    assert isinstance(
        read_fields(write(tmp_path, ["drawing.png", "notes.jpg"])).features["image"], ImageFeature
    )


def test_fewer_images_than_half_are_bytes(tmp_path: Path) -> None:
    source = read_fields(in_records(tmp_path, ["drawing.png", "notes.jpg", "noise.jpg"]))
    assert (source.features["image"], source.images) == (Tensor("string"), None)
    with pytest.raises(UsageError, match="which no record can"):
        read_fields(in_parquet(tmp_path, ["drawing.png", "notes.jpg", "noise.jpg"]))


@pytest.mark.parametrize("options", [Options(channels=3), Options(resize=(8, 8))], ids=["channels", "resize"])
def test_options_for_images_are_refused_without_any(tmp_path: Path, options: Options) -> None:
    (tmp_path / "rows.csv").write_text("n,label\n1,a\n2,b\n")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.tfrecord").write_bytes(frame(encode({"n": 1})))
    (tmp_path / "pos").mkdir()
    (tmp_path / "pos" / "1.txt").write_text("good")
    for name, kind in (("rows.csv", None), ("rows.parquet", None), ("rows.tfrecord", None), (".", "text")):
        with pytest.raises(UsageError, match=r"no images|and no others"):
            open_source(tmp_path / name, kind, options, no_progress)
