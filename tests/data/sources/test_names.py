"""What names of files say: the kind of a source, masks of pictures, members of WebDataset's samples."""

from __future__ import annotations

import re

import pytest

from tpuctl.data.sources import names
from tpuctl.data.sources.names import (
    ending,
    is_mask,
    is_media,
    is_value,
    pair_name,
    sample_key,
    shows_masks,
    shows_samples,
)

PATTERNS = {
    "metadata": names.METADATA,
    "metadata in parquet": names.METADATA_PARQUET,
    "coco": names.COCO,
    "shards": names.TAR_SHARDS,
    "tfrecords": names.TFRECORDS,
    "parquet": names.PARQUET,
    "json lines": names.JSON_LINES,
    "csv": names.CSV,
    "numpy": names.NUMPY,
    "idx": names.IDX,
}
NAMES = """
metadata.jsonl metadata, json lines
train/metadata.csv metadata, csv
train/metadata.parquet metadata in parquet, parquet
mymetadata.csv csv
metadata.csv.gz csv
instances.json coco
annotations/instances_val2017.json coco
instances/a.json
annotations.json coco
_annotations.coco.json coco
train/my-coco-file.json coco
my_annotations.json
a.tar shards
a.tar.gz shards
a.tgz shards
a.tar.zst shards
a.tzst shards
a.tar.bz2
a.tfrecord tfrecords
a.tfrecords tfrecords
a.tfrec tfrecords
a.tfrec.gz tfrecords
a.tfrecord-00000-of-00001 tfrecords
a.tfrecords-12345-of-99999.gz tfrecords
a.tfrecord-0000-of-0001
a.tfrecorded
atfrecord
a.parquet parquet
a.pq parquet
a.parquet.gz
a.jsonl json lines
a.ndjson json lines
a.jsonlines.gz json lines
a.json
a.csv csv
a.tsv.gz csv
a.csv.zip
a.npy numpy
a.npz numpy
a.npy.gz numpy
a.npz.gz
train-images-idx3-ubyte idx
train-images-idx3-ubyte.gz idx
train-images.idx3-ubyte idx
a.idx idx
a-idx1 idx
a.idx3.gz idx
a.idx10
a-idx1-int.gz idx
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_a_name_shows_its_kind(line: str) -> None:
    name, _, kinds = line.partition(" ")
    found = [kind for kind, pattern in PATTERNS.items() if re.search(pattern, name)]
    assert ", ".join(found) == kinds


@pytest.mark.parametrize(
    "ending",
    ["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff", "jp2", "avif", "heic", "heif", "wav", "flac"],
)
def test_pictures_and_sounds_are_told_by_their_endings(ending: str) -> None:
    assert is_media(f"a/b.{ending}")
    assert is_media(f"B.{ending.upper()}")
    assert not is_media(f"b{ending}"[:-1])
    assert not is_media(f"b.{ending}.txt")


@pytest.mark.parametrize("name", ["a.txt", "a.mp3", "a.svg", "png", "a.json"])
def test_other_files_are_neither(name: str) -> None:
    assert not is_media(name)


def test_the_names_of_other_libraries_are_theirs() -> None:
    assert (names.TFDS_INFO, names.TFDS_FEATURES) == ("dataset_info.json", "features.json")
    assert (names.SAVED_STATE, names.SAVED_DICT) == ("state.json", "dataset_dict.json")
    assert names.TEXT_FILES == (".txt", ".text")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *((f"{folder}/1.png", True) for folder in ("masks", "mask", "annotations", "labels")),
        *((f"{folder}/1.png", False) for folder in ("images", "image", "imgs", "jpegimages", "other")),
        ("SegmentationClass/1.png", True),
        ("train/Masks/a/1.png", True),
        ("1_mask.png", True),
        ("1-seg.png", True),
        ("1.segmentation.png", True),
        ("1_MASK.PNG", True),
        ("1mask.png", False),
        ("mask.png", False),
        ("1_mask_2.png", False),
        ("masks.png", False),
        ("1.png", False),
    ],
)
def test_a_mask_is_told_by_its_folder_or_by_the_end_of_its_name(path: str, expected: bool) -> None:
    assert is_mask(path) is expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("images/1.jpg", "1"), ("masks/1.png", "1"), ("train/Images/a/1.jpg", "train/a/1"),
        ("JPEGImages/1.jpg", "1"), ("SegmentationClass/1.png", "1"), ("imgs/1.jpg", "1"),
        ("image/1.jpg", "1"), ("mask/1_mask.png", "1"), ("annotations/1.png", "1"), ("labels/1.png", "1"),
        ("1_mask.png", "1"), ("1-seg.png", "1"), ("1.segmentation.png", "1"), ("a/1.x.png", "a/1.x"),
    ],
)  # fmt: skip
def test_a_picture_and_its_mask_have_a_name_in_common(path: str, name: str) -> None:
    assert pair_name(path) == name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["images/1.jpg", "masks/1.png"], True),
        (["Images/1.JPG", "Masks/1.PNG"], True),
        (["1.jpg", "1_mask.png"], True),
        (["1.jpg", "1_mask.png", "notes.txt"], True),
        (["1.jpg", "1_mask.png", "2.jpg"], False),
        (["images/1.jpg", "masks/1.png", "1.jpg"], False),
        (["masks/1.png"], False),
        (["images/1.jpg"], False),
        (["images/1.jpg", "masks/1.txt"], False),
        ([], False),
        (["a/1.jpg", "b/1_mask.png"], False),
        (["image/1.jpg", "labels/1.png"], True),
        (["imgs/1.jpg", "annotations/1.png"], True),
        (["JPEGImages/1.jpg", "SegmentationClass/1.png"], True),
        (["images.jpg", "masks/1.png"], False),
    ],
)
def test_a_source_shows_masks_if_each_picture_has_one_or_lies_among_pictures(
    names: list[str], expected: bool
) -> None:
    assert shows_masks(names) is expected


@pytest.mark.parametrize(
    ("path", "key", "end"),
    [
        ("0001.jpg", "0001", "jpg"),
        ("0001.left.PNG", "0001", "png"),
        ("a.b/0001.seg.png", "a.b/0001", "png"),
        ("a/b", "a/b", "a/b"),
        (".cls", "", "cls"),
    ],
)
def test_a_sample_is_what_comes_before_the_first_point(path: str, key: str, end: str) -> None:
    assert (sample_key(path), ending(path)) == (key, end)


@pytest.mark.parametrize(
    "end",
    ["cls", "cls2", "index", "inx", "id", "count", "txt", "text", "transcript", "caption", "json", "TXT"],
)
def test_numbers_texts_and_json_are_values(end: str) -> None:
    assert is_value(f"a/0001.{end}")
    assert not is_value(f"a/0001.{end}x")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1.jpg", "1.cls"], True),
        (["a/1.cls"], True),
        (["a/1.cls2"], True),
        (["1.jpg", "1.txt"], True),
        (["1.jpg", "1.json"], True),
        (["1.jpg", "2.txt"], False),
        (["a/1.jpg", "a/1.txt"], False),
        (["1.txt", "1.json"], False),
        (["1.jpg", "1.png"], True),
        (["1.jpg", "1.xyz"], False),
        (["1.wav", "1.transcript"], True),
        (["cls", "a.b/cls"], False),
        ([], False),
    ],
)
def test_samples_are_told_by_their_members(names: list[str], expected: bool) -> None:
    assert shows_samples(names) is expected
