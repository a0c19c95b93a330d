"""The usual script that makes TFRecord files, as people write it: the peer in benchmarks/datasets.

python -m benchmarks.datasets.usual images|rows SOURCE TARGET SHARDS
"""

from __future__ import annotations

import csv
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf


def main() -> None:
    """Convert; print the seconds that took, imports left out."""
    kind, source, target, shards = sys.argv[1:]
    began = time.perf_counter()
    SCRIPTS[kind](Path(source), Path(target), int(shards))
    print(json.dumps({"seconds": time.perf_counter() - began}))


def convert_images(source: Path, target: Path, shards: int) -> None:
    """Write the files of class folders, shuffled."""
    classes = sorted(folder.name for folder in source.iterdir())
    paths = sorted(source.glob("*/*.jpg"))
    random.Random(0).shuffle(paths)
    write(target, shards, len(paths), (_image(path, classes.index(path.parent.name)) for path in paths))


def convert_rows(source: Path, target: Path, shards: int) -> None:
    """Write the rows of a CSV file, shuffled."""
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    random.Random(0).shuffle(rows)
    write(target, shards, len(rows), map(_row, rows))


def write(target: Path, shards: int, count: int, examples: Iterator[tf.train.Example]) -> None:
    """Write examples to shards one after the other."""
    target.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        name = target / f"bench-train.tfrecord-{shard:05}-of-{shards:05}"
        with tf.io.TFRecordWriter(str(name)) as writer:
            for _ in range(count * shard // shards, count * (shard + 1) // shards):
                writer.write(next(examples).SerializeToString())


def _image(path: Path, label: int) -> tf.train.Example:
    return _example({"image": _bytes(path.read_bytes()), "label": _int(label)})


def _row(row: dict[str, str]) -> tf.train.Example:
    return _example(
        {
            "id": _int(int(row["id"])),
            "length": _float(float(row["length"])),
            "width": _float(float(row["width"])),
            "height": _float(float(row["height"])),
            "weight": _float(float(row["weight"])),
            "colour": _bytes(row["colour"].encode()),
            "comment": _bytes(row["comment"].encode()),
            "label": _int(int(row["label"])),
        }
    )


def _example(features: dict[str, Any]) -> tf.train.Example:
    return tf.train.Example(features=tf.train.Features(feature=features))


def _bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float(value: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))


def _int(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


SCRIPTS = {"images": convert_images, "rows": convert_rows}

if __name__ == "__main__":
    main()
