"""Names of files, and the kind of source that each shows."""

from __future__ import annotations

import re

import pytest

from tpuctl.data.sources import names
from tpuctl.data.sources.names import is_media

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
