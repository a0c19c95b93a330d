"""What tensorflow-datasets reads of every kind of source that was converted; one process imports it, once."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.images.zoo import LITTER, ZOO
from tests.data.source_trees import write_image
from tests.data.sources.annotated.test_sounds import WAVE, wav
from tests.data.sources.annotated.test_sounds import write as write_sounds
from tests.data.sources.annotated.test_webdataset import sample, shard
from tests.data.sources.annotated.trees import write_coco, write_mask
from tests.data.sources.huggingface.test_saved import GOLDEN
from tests.forks.tensorflow_python import report_of
from tests.paths import ROOT
from tpuctl.data.sources.registry import READERS
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame

USABLE = {name: odd for name, odd in ZOO.items() if not odd.why.startswith("bad")}
"""The odd files that are kept or converted."""
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4), np.uint8)
NUMBERS = np.array([2, 1, 0, 1, 2, 0])
ROWS: list[dict[str, Any]] = [
    {"age": 31, "height": 1.75, "name": "Ann", "ok": True, "label": "b"},
    {"age": 4, "height": math.nan, "name": 'Zo\u00eb, "Z"\n', "ok": False, "label": "a"},
]
READ: list[dict[str, Any]] = [
    {"age": 31, "height": 1.75, "name": "Ann", "ok": True, "label": 1},
    {"age": 4, "height": None, "name": 'Zo\u00eb, "Z"\n'.encode().decode("latin-1"), "ok": False, "label": 0},
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one source of each kind."""
    root = tmp_path_factory.mktemp("tfds") / "sources"
    folders = (
        "csv",
        "jsonl",
        "numpy",
        "idx",
        "text/pos",
        "text/neg",
        "tfrecord",
        "parquet",
        "theirs",
        "tokens",
    )
    for name in folders:
        (root / name).mkdir(parents=True)
    write_coco(root / "coco")
    write_image(root / "masks" / "images" / "1.png", shade=1)
    write_mask(root / "masks" / "masks" / "1.png")
    shard(root / "webdataset" / "train-0000.tar", sample("0", 0) | sample("1", 1))
    write_sounds(root / "audio", {"train/no/1.wav": wav(), "train/yes/2.wav": wav(-WAVE)})
    shutil.copytree(GOLDEN / "saved", root / "saved")
    write_image(root / "metadata" / "a.png", shade=2)
    (root / "metadata" / "metadata.csv").write_text("file_name,tags\na.png,red|blue\n")
    for number in range(3):
        write_image(root / "images" / ("cat", "dog")[number % 2] / f"{number}.png", shade=number)
    for name in ("zoo", "zoo_keep", "zoo_rgba"):
        write_zoo(root / name)
    with (root / "csv" / "people.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    lines = [
        {
            **row,
            "height": None if row["height"] != row["height"] else row["height"],
            "v": [1, 2][: row["ok"] + 1],
            "w": [0.5, 1.5],
        }
        for row in ROWS
    ]
    (root / "jsonl" / "people.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    pq.write_table(
        pa.table(
            {
                "small": pa.array([1, -2], pa.int8()),
                "text": ["a", None],
                "several": [[1, 2, 3], []],
                "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
                "label": ["x", "y"],
            }
        ),
        root / "parquet" / "train.parquet",
    )
    np.savez(
        root / "numpy" / "data.npz",
        x_train=PIXELS[:4],
        y_train=NUMBERS[:4],
        x_test=PIXELS[4:],
        y_test=NUMBERS[4:],
    )
    points = np.arange(12, dtype=">i2").reshape(6, 2)
    (root / "idx" / "points-idx2-short").write_bytes(
        bytes([0, 0, 11, 2, 0, 0, 0, 6, 0, 0, 0, 2]) + points.tobytes()
    )
    for text in ("pos/1", "neg/1"):
        (root / "text" / f"{text}.txt").write_text(text)
    (root / "tokens" / "train.csv").write_text("text,label\naab ab,x\nab,y\n")
    records = [encode({"n": number, "v": [0.5] * number or [7.0], "t": "t\u00e9xt"}) for number in range(3)]
    (root / "tfrecord" / "a.tfrecord").write_bytes(b"".join(map(frame, records)))
    return root


def write_zoo(root: Path) -> None:
    """Write all odd files that are used in two classes, and the litter of systems among them."""
    for folder in ("camera/__MACOSX", "scraper"):
        (root / folder).mkdir(parents=True)
    for number, (name, odd) in enumerate(USABLE.items()):
        (root / ("camera", "scraper")[number % 2] / name).write_bytes(odd.make())
    for name in LITTER:
        (root / "camera" / name).write_bytes(b"litter")


@pytest.fixture(scope="module")
def report(sources: Path) -> dict[str, Any]:
    program = "tests.data.output.read_with_tfds"
    return dict(report_of("-m", program, sources, variables={"PYTHONPATH": str(ROOT)}))


def test_every_kind_of_source_is_read(report: dict[str, Any]) -> None:
    assert {described["kind"] for described in report.values()} == set(READERS)
    counts = {name: described["counts"] for name, described in report.items()}
    assert counts == {
        "audio": {"train": 2},
        "coco": {"train": 3},
        "csv": {"train": 2},
        "idx": {"train": 6},
        "images": {"train": 3},
        "jsonl": {"train": 2},
        "masks": {"train": 1},
        "metadata": {"train": 1},
        "numpy": {"train": 4, "test": 2},
        "parquet": {"train": 2},
        "saved": {"train": 3, "test": 2},
        "text": {"train": 2},
        "tfrecord": {"train": 3},
        "theirs": {"train": 3, "test": 2},
        "tokens": {"train": 2},
        "webdataset": {"train": 2},
        **{name: {"train": len(USABLE)} for name in ("zoo", "zoo_keep", "zoo_rgba")},
    }


def test_tfds_reads_every_picture_that_is_used_with_the_channels_of_the_dataset(
    report: dict[str, Any],
) -> None:
    shapes = {
        name: {record["image"][2] for record in report[name]["records"]}
        for name in ("zoo", "zoo_rgba", "zoo_keep")
    }
    assert shapes == {"zoo": {3}, "zoo_rgba": {4}, "zoo_keep": {1, 2, 3, 4}}
    assert {record["image"][0] for record in report["zoo"]["records"]} == {1, 32}


def test_tf_data_grain_and_plain_python_read_the_same_records_of_every_source(
    report: dict[str, Any],
) -> None:
    for name, described in report.items():
        same = {split: [count] * 3 for split, count in described["counts"].items()}
        assert described["read"] == same, name


def test_tf_data_grain_and_plain_python_read_the_same_pictures(report: dict[str, Any]) -> None:
    for name, channels in (("zoo", [3]), ("zoo_rgba", [4]), ("zoo_keep", [1, 2, 3, 4])):
        others = report[name]["others"]
        assert others["counts"] == [len(USABLE)] * 3
        assert (others["shapes"], others["alike"]) == (channels, True)
        assert others["difference"] <= 8  # TensorFlow and Pillow decode a JPEG with other rounding


def in_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort records; NaN becomes None, which is equal to itself."""
    plain = [
        {name: None if value != value else value for name, value in record.items()} for record in records
    ]
    return sorted(plain, key=lambda record: json.dumps(record, sort_keys=True))


def test_tables_have_their_values_and_types(report: dict[str, Any]) -> None:
    types = {"age": "Scalar", "height": "Scalar", "label": "ClassLabel", "name": "Text", "ok": "Scalar"}
    assert report["csv"]["types"] == types
    assert in_order(report["csv"]["records"]) == in_order(READ)
    lists = [{"v": [1, 2], "w": [0.5, 1.5]}, {"v": [1], "w": [0.5, 1.5]}]
    assert in_order(report["jsonl"]["records"]) == in_order(
        [{**row, **more} for row, more in zip(READ, lists, strict=True)]
    )
    assert report["csv"]["names"] == report["jsonl"]["names"] == {"label": ["a", "b"]}
    assert in_order(report["parquet"]["records"]) == in_order(
        [
            {"small": 1, "text": "a", "several": [1, 2, 3], "pair": [1.0, 2.0], "label": 0},
            {"small": -2, "text": "", "several": [], "pair": [3.0, 4.0], "label": 1},
        ]
    )


def test_arrays_have_their_values_and_types(report: dict[str, Any]) -> None:
    assert report["numpy"]["types"] == {"image": "Image", "label": "ClassLabel"}
    assert report["numpy"]["supervised"] == 2
    assert in_order(report["numpy"]["records"]) == in_order(
        [
            {"image": [5, 4, 1, int(pixels.sum())], "label": int(number)}
            for pixels, number in zip(PIXELS, NUMBERS, strict=True)
        ]
    )
    assert in_order(report["idx"]["records"]) == in_order(
        [{"points": [2 * number, 2 * number + 1]} for number in range(6)]
    )


def test_boxes_and_masks_are_those_of_the_pictures(report: dict[str, Any]) -> None:
    assert report["coco"]["names"] == {"objects": ["cat", "dog"]}
    assert report["coco"]["types"]["objects"] == "Sequence"
    record = next(record for record in report["coco"]["records"] if record["image/id"] == 12)
    assert record["image/filename"] == "2.png"
    assert record["objects"] == {
        "area": [12, 12],
        "bbox": [[0.25, 0.25, 0.75, 0.75], [0.25, 0.25, float(np.float32(3.5 / 6)), 0.75]],
        "id": [200, 201],
        "is_crowd": [False, True],
        "label": [0, 1],
    }
    assert report["masks"]["types"] == {"image": "Image", "segmentation_mask": "Image"}
    assert report["masks"]["records"][0]["segmentation_mask"] == [6, 8, 1, 72]
    assert report["masks"]["supervised"] == 2


def test_samples_and_rows_beside_pictures_have_their_values(report: dict[str, Any]) -> None:
    image = [6, 8, 3, 0]
    assert in_order(report["webdataset"]["records"]) == in_order(
        [
            {"image": image, "label": number, "source": "x", "text": f"text {number}", "width": number}
            for number in range(2)
        ]
    )
    assert report["metadata"]["names"] == {"tags": ["blue", "red"]}
    assert report["metadata"]["records"][0]["tags"] == [1, 0]


def test_a_saved_dataset_of_hugging_face_has_its_classes_and_arrays(report: dict[str, Any]) -> None:
    names = {"label": ["cat", "dog", "cow"], "tags": ["red", "blue"]}
    assert report["saved"]["names"] == names
    record = next(record for record in report["saved"]["records"] if record["text"] == "b")
    assert (record["label"], record["tags"]) == (1, [])
    assert record["grid"] == [[1.0] * 3] * 2


def test_sounds_have_their_samples(report: dict[str, Any]) -> None:
    assert report["audio"]["types"] == {"audio": "Audio", "label": "ClassLabel"}
    assert in_order(report["audio"]["records"]) == in_order(
        [{"audio": WAVE.tolist(), "label": 0}, {"audio": (-WAVE).tolist(), "label": 1}]
    )


def test_token_ids_are_a_vector(report: dict[str, Any]) -> None:
    assert report["tokens"]["types"] == {"label": "ClassLabel", "tokens": "Tensor"}
    assert report["tokens"]["supervised"] == 2
    assert in_order(report["tokens"]["records"]) == in_order(
        [  # the vocabulary: [PAD] [UNK] [CLS] [SEP] [MASK] a ##a ##b ab ##ab aab
            {"tokens": [2, 10, 8, 3, 0, 0], "label": 0},
            {"tokens": [2, 8, 3, 0, 0, 0], "label": 1},
        ]
    )


def test_texts_and_records_and_tfds_own_have_theirs(report: dict[str, Any]) -> None:
    assert in_order(report["text"]["records"]) == [
        {"label": 0, "text": "neg/1"},
        {"label": 1, "text": "pos/1"},
    ]
    text = "t\u00e9xt".encode().decode("latin-1")
    assert in_order(report["tfrecord"]["records"]) == in_order(
        [
            {"n": 0, "v": [7.0], "t": text},
            {"n": 1, "v": [0.5], "t": text},
            {"n": 2, "v": [0.5, 0.5], "t": text},
        ]
    )
    assert report["theirs"]["types"] == {
        "boxes": "Sequence",
        "image": "Image",
        "image/filename": "Text",
        "label": "ClassLabel",
        "objects": "Sequence",
        "sound": "Audio",
        "tags": "Sequence",
        "track": "Sequence",
    }
    names = {"label": ["cat", "dog"], "objects": ["ear", "paw"], "tags": ["red", "blue"]}
    assert report["theirs"]["names"] == names
    assert in_order(report["theirs"]["records"]) == in_order(
        [
            {
                "boxes": [[0.0, 0.0, 0.5, 1.0]] * number,
                "image": [4, 5 + number, 3, number * 4 * (5 + number) * 3],
                "image/filename": f"{number}.png",
                "label": number % 2,
                "objects": {"bbox": [[0.25, 0.0, 0.5, 1.0]] * number, "label": [1] * number},
                "sound": [[number, -number]] * number,
                "tags": [1, 0][:number],
                "track": [[1, 2], [3]][:number],
            }
            for number in range(5)
        ]
    )
