"""TFRecord files as sources: shards, their Examples, and the fields that they become."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.source_trees import items, no_progress, only_bad, opened, png, produce
from tpuctl.data.options import Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Box, Feature, Image, Label, Other, Several, Tensor, Text
from tpuctl.data.source import Observations, Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.sources.tfrecord_files import ExampleChecks, infer_features
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
from tpuctl.errors import UsageError

EXAMPLES = [
    encode({"image": png(100), "label": number % 3, "box": [0.5, 1.0], "tags": [1] * number, "name": "größe"})
    if number
    else encode({"image": png(100), "label": 0, "box": [0.5, 1.0], "tags": [7], "name": "a"})
    for number in range(6)
]
NAME = "pets.tfrecord-00000-of-00001"


def write(tmp_path: Path, records: Sequence[bytes] = EXAMPLES, name: str = NAME) -> Path:
    data = b"".join(map(frame, records))
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return tmp_path / name


def read(path: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(open_source(path, None, options, no_progress))


@pytest.mark.parametrize("name", [NAME, "pets.tfrecord", "pets.tfrecords.gz", "pets.tfrec"])
def test_records_go_on_as_they_are_with_their_features_inferred(tmp_path: Path, name: str) -> None:
    source = read(write(tmp_path, name=name))
    assert source.kind == "tfrecord"
    assert items(source) == EXAMPLES
    assert items(source, 5, 0, 3) == [EXAMPLES[5], EXAMPLES[0], EXAMPLES[3]]
    assert dict(source.features) == {
        "box": Tensor("float32", (2,)),
        "image": Image((None, None, 3)),
        "label": Tensor("int64"),
        "name": Text(),
        "tags": Tensor("int64", (None,)),
    }
    observations = Observations()
    list(source.read(np.arange(6), observations))
    assert source.final_features(observations)["image"] == Image((6, 8, 3), "uint8", "png")
    assert source.exact
    assert [(part.records, part.size) for part in source.parts] == [(6, sum(map(len, EXAMPLES)))]


def test_large_records_are_jumped_over_and_small_ones_come_by_the_block(tmp_path: Path) -> None:
    sizes = [1, 300_000, 5, 2_000_000, 70_000, 3, *range(500)]
    records = [encode({"data": os.urandom(size)}) for size in sizes]
    assert items(read(write(tmp_path, records))) == records


def test_a_label_is_given_by_name(tmp_path: Path) -> None:
    source = read(write(tmp_path), Options(label="label"))
    assert source.features["label"] == Label(("0", "1", "2"))
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.raises(UsageError, match="The feature 'name' is no label"):
        read(tmp_path / NAME, Options(label="name"))


def test_a_type_says_how_a_feature_is_read_and_does_not_change_it(tmp_path: Path) -> None:
    source = read(write(tmp_path), Options(types={"name": "bytes", "tags": "bool"}))
    assert (source.features["name"], source.features["tags"]) == (Tensor("string"), Tensor("bool", (None,)))
    with pytest.raises(UsageError, match="The feature 'name' holds bytes values, and cannot be int"):
        read(tmp_path / NAME, Options(types={"name": "int"}))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (encode({"x": [1, 2]}), "has 2 values in the feature 'x', expected 1"),
        (encode({"y": 1}), "has nothing in the feature 'x', expected 1"),
        (encode({"x": 0.5}), "has floats in the feature 'x', expected integers"),
        (b"\xff\xff\xff", "is not a tf.train.Example"),
    ],
)
def test_a_record_that_is_not_like_the_others_is_named(tmp_path: Path, record: bytes, message: str) -> None:
    source = read(write(tmp_path, [encode({"x": 1})] * 3 + [record] + [encode({"x": 1})] * 150))
    assert only_bad(source) == f"record 4 of '{NAME}' {message}"


def test_a_broken_image_in_a_record_is_named(tmp_path: Path) -> None:
    source = read(
        write(tmp_path, [encode({"image": image}) for image in (png(100), png(100), png(100)[:60])])
    )
    assert only_bad(source).startswith(
        f"record 3 of '{NAME}' has an image in the feature 'image' which cannot be"
    )


def test_a_flipped_bit_in_the_data_is_one_bad_record(tmp_path: Path) -> None:
    file = write(tmp_path)
    data = bytearray(file.read_bytes())
    data[len(frame(EXAMPLES[0])) + 40] ^= 1
    file.write_bytes(data)
    source = read(file)
    assert only_bad(source) == f"record 2 of '{NAME}' is damaged: the checksum of its data does not match"
    assert len(items(source)) == 6


@pytest.mark.parametrize(
    ("damage", "why"), [("cut", "the file ends in the middle"), ("length", "the checksum of its")]
)
def test_what_follows_a_damaged_length_is_lost_and_said(tmp_path: Path, damage: str, why: str) -> None:
    file = write(tmp_path)
    data = bytearray(file.read_bytes())
    start = sum(len(frame(example)) for example in EXAMPLES[:4])
    data[start] ^= damage == "length"
    file.write_bytes(data[: start + 30] if damage == "cut" else data)
    source = read(file)
    assert str(source.bad[0]).startswith(f"record 5 of '{NAME}' is damaged ({why}")
    assert items(source) == EXAMPLES[:4]
    objects = produce(plan(tmp_path, name="pets", skip_bad=True), skip_bad=True)
    assert b"is damaged" in objects["manifest.json"]


def test_a_file_that_is_no_tfrecord_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "pets.tfrecord").write_bytes(b"hello, I am a text of some length")
    with pytest.raises(UsageError, match=r"'pets.tfrecord' has no records of tf.train.Example: record 1 of"):
        read(tmp_path / "pets.tfrecord")


def test_a_file_that_changes_under_way_is_named(tmp_path: Path) -> None:
    source = read(write(tmp_path))
    write(tmp_path, EXAMPLES[:2])
    with pytest.raises(UsageError, match="has changed"):
        items(source)
    with pytest.raises(UsageError, match="has changed"):
        source.check()


def tfds(tmp_path: Path, **info: Any) -> Path:
    """Write a folder as TFDS does."""
    root = tmp_path / "1.0.0"
    write(root, EXAMPLES[:4], "pets-train.tfrecord-00000-of-00002")
    write(root, EXAMPLES[4:5], "pets-train.tfrecord-00001-of-00002")
    write(root, EXAMPLES[5:], "pets-odd_ones.tfrecord-00000-of-00001")
    package = "tensorflow_datasets.core.features"
    scalar = {"pythonClassName": f"{package}.text_feature.Text", "text": {}}
    classes = {
        "pythonClassName": f"{package}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": "3"},
    }
    image = {
        "pythonClassName": f"{package}.image_feature.Image",
        "image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8", "encodingFormat": "png"},
    }
    box = {
        "pythonClassName": f"{package}.bounding_boxes.BBoxFeature",
        "boundingBox": {"shape": {"dimensions": ["4"]}},
    }
    features = {"name": scalar, "label": classes, "image": image, "box": box}
    (root / "features.json").write_text(json.dumps({"featuresDict": {"features": features}}))
    (root / "label.labels.txt").write_text("cat\ndog\nemu\n")
    splits = [
        {"name": "train", "shardLengths": ["4", "1"], "numBytes": "1"},
        {
            "name": "odd_ones",
            "shardLengths": ["1"],
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        },
    ]
    keys = {"tuple": {"items": [{"featureKey": "image"}, {"featureKey": "label"}]}}
    whole = {"name": "pets", "fileFormat": "tfrecord", "splits": splits, "supervisedKeys": keys, **info}
    (root / "dataset_info.json").write_text(json.dumps(whole))
    return root


def test_a_folder_of_tfds_keeps_its_types_splits_and_records(tmp_path: Path) -> None:
    root = tfds(tmp_path)
    for source in (read(root), read(tmp_path)):
        assert source.kind == "tfds"
        assert [(part.split, part.records) for part in source.parts] == [("train", 5), ("odd_ones", 1)]
        assert items(source) == EXAMPLES
        assert source.supervised == ("image", "label")
        assert source.features["label"] == Label(("cat", "dog", "emu"))
        assert source.features["image"] == Image((None, None, 3), "uint8", "png")
        assert isinstance(source.features["box"], Other)
    objects = produce(plan(root, name="pets", version="2.0.0"))
    written = json.loads(objects["features.json"])["featuresDict"]["features"]
    assert (
        written["box"] == json.loads((root / "features.json").read_text())["featuresDict"]["features"]["box"]
    )


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (
            {"splits": [{"name": "train", "shardLengths": ["4", "2"]}]},
            "has 1 records, and dataset_info.json says 2",
        ),
        ({"splits": [{"name": "train", "shardLengths": ["4", "1", "7"]}]}, "Cannot read 'pets-train"),
        ({"fileFormat": "riegeli"}, "files are riegeli, expected TFRecord"),
        ({"name": "../pets"}, "says that a shard is called '../pets-train"),
    ],
)
def test_a_folder_of_tfds_that_does_not_agree_with_itself_is_named(
    tmp_path: Path, info: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tfds(tmp_path, **info))
    assert message in caught.value.message


def test_a_folder_of_tfds_takes_no_option_that_changes_records(tmp_path: Path) -> None:
    root = tfds(tmp_path)
    for options in (
        Options(types={"name": "bytes"}), Options(label="label"), Options(resize=(3, 3)), Options(channels=1),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="has the types of its fields itself"):
            read(root, options)


def test_a_shard_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    root = tfds(tmp_path)
    shard = root / "pets-odd_ones.tfrecord-00000-of-00001"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link that leaves the source"):
        read(root)


def test_several_versions_are_named(tmp_path: Path) -> None:
    tfds(tmp_path / "a")
    tfds(tmp_path / "b")
    with pytest.raises(UsageError, match=r"several datasets in .*'a/1.0.0', 'b/1.0.0'"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["features.json", "label.labels.txt", "dataset_info.json"])
def test_metadata_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    file = tfds(tmp_path / "pets") / name
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=rf"'{name}' is a link that leaves the source"):
        read(tmp_path / "pets")


def inferred(*values: list[Any]) -> Feature | None:
    features, images = infer_features([{"x": items} for items in values], Options(), sampled=False)
    assert not images
    return features.get("x")


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([[1], [2]], Tensor("int64")),
        ([[1.5], [2.0]], Tensor("float32")),
        ([[b"a"], ["\u00e9".encode()]], Text()),
        ([[b"a"], [b"\xff"]], Tensor("string")),
        ([[b"a"], [b"a\0b"]], Tensor("string")),
        ([[1, 2], [3, 4]], Tensor("int64", (2,))),
        ([[1.5, 2.0, 0.0]], Tensor("float32", (3,))),
        ([[b"a", b"b"]], Tensor("string", (2,))),
        ([[1, 2], [3]], Tensor("int64", (None,))),
        ([[1], []], None),
        ([[1], [2], []], Tensor("int64", (None,))),
        ([[1]] * 99 + [[1, 2]], Tensor("int64")),
        ([[1]] * 98 + [[1, 2]] * 2, Tensor("int64", (None,))),
        ([[1]] * 99 + [[]], Tensor("int64")),
    ],
)
def test_a_feature_is_what_nearly_all_records_have(values: list[list[Any]], feature: Feature | None) -> None:
    assert inferred(*values) == feature


def test_features_are_in_the_order_of_their_names() -> None:
    features, _ = infer_features([{"b": [1], "a": [b"x"], "c": [1.0]}], Options(), sampled=False)
    assert list(features.items()) == [("a", Text()), ("b", Tensor("int64")), ("c", Tensor("float32"))]


@pytest.mark.parametrize(
    ("feature", "values", "why"),
    [
        (Tensor("int64"), [1], ""),
        (Tensor("int64"), [], "has nothing in the feature 'x', expected 1"),
        (Tensor("int64"), [1, 2], "has 2 values in the feature 'x', expected 1"),
        (Tensor("int64"), [1.0], "has floats in the feature 'x', expected integers"),
        (Tensor("float32"), [1], "has integers in the feature 'x', expected floats"),
        (Text(), [1], "has integers in the feature 'x', expected bytes"),
        (Tensor("int64"), [b"a"], "has bytes in the feature 'x', expected integers"),
        (Tensor("float32", (2, 3)), [1.0] * 6, ""),
        (Tensor("float32", (2, 3)), [1.0], "has 1 value in the feature 'x', expected 6"),
        (Tensor("int64", (None,)), [], ""),
        (Tensor("int64", (None,)), [1, 2, 3], ""),
        (Tensor("int64", (None, 2)), [1, 2, 3, 4], ""),
        (Tensor("int64", (None, 2)), [1, 2, 3], "has 3 values in the feature 'x', expected 2"),
        (Label(("a", "b")), [1], ""),
        (Label(("a", "b")), [0, 1], "has 2 values in the feature 'x', expected 1"),
        (Box(), [0.0, 0.0, 1.0, 1.0], ""),
        (Box(), [0.0, 0.0, 1.0], "has 3 values in the feature 'x', expected 4"),
        (Several(Label(("a", "b"))), [0, 1, 1], ""),
        (Several(Label(("a", "b"))), [], ""),
        (Several(Box()), [0.0] * 8, ""),
        (Several(Box()), [0.0] * 6, "has 6 values in the feature 'x', expected 4"),
    ],
)
def test_a_record_of_another_kind_or_number_is_bad(feature: Feature, values: list[Any], why: str) -> None:
    record = encode({"x": values} if values else {"y": [1]})
    assert ExampleChecks({"x": feature}, {})(record, Observations()) == (record, why)


def test_what_is_no_example_is_named() -> None:
    checks = ExampleChecks({"x": Tensor("int64")}, {})
    assert checks(b"\xff", Observations()) == (b"\xff", "is not a tf.train.Example")
