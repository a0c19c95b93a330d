"""Reads the records of a dataset with tf.data, with Grain, and with plain Python."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
import tensorflow as tf
from PIL import Image


def compared(folder: Path) -> dict[str, Any]:
    """Return how many images each reads, and the largest difference between two decoders of one image."""
    file = str(next(folder.glob("*.tfrecord-*")))
    by_tensorflow = list(with_tf_data(file))
    by_grain = [decoded(record) for record in grain.experimental.TFRecordIterDataset(file)]
    by_python = [decoded(record) for record in plain_records(Path(file))]
    pairs = [*zip(by_tensorflow, by_grain, strict=True), *zip(by_tensorflow, by_python, strict=True)]
    return {
        "counts": [len(by_tensorflow), len(by_grain), len(by_python)],
        "shapes": sorted({image.shape[2] for image in by_tensorflow}),
        "alike": all(one.shape == other.shape for one, other in pairs),
        "difference": max(int(np.abs(one.astype(int) - other).max()) for one, other in pairs),
    }


def counted(folder: Path) -> dict[str, list[int]]:
    """Return of each split how many records tf.data, Grain and plain Python read, which must be the same."""
    counts: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.tfrecord-*")):
        split = path.name.partition(".")[0].rpartition("-")[2]
        records = [
            list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()),
            list(grain.experimental.TFRecordIterDataset(str(path))),
            list(plain_records(path)),
        ]
        assert records[0] == records[1] == records[2], path
        examples = [tf.train.Example.FromString(record) for record in records[0]]
        assert all(example.features.feature for example in examples), path
        before = counts.get(split, [0] * 3)
        counts[split] = [count + len(read) for count, read in zip(before, records, strict=True)]
    return counts


def with_tf_data(file: str) -> Iterator[np.ndarray[Any, Any]]:
    """Decode as a training job does."""
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    dataset = tf.data.TFRecordDataset(file).map(
        lambda record: tf.io.decode_image(tf.io.parse_single_example(record, spec)["image"])
    )
    yield from dataset.as_numpy_iterator()


def decoded(record: bytes) -> np.ndarray[Any, Any]:
    """Decode with Pillow, which says how many channels an image has: a palette is one of colours."""
    example = tf.train.Example.FromString(record)
    (data,) = example.features.feature["image"].bytes_list.value
    with Image.open(io.BytesIO(data)) as image:
        mode = ("RGBA" if "transparency" in image.info else "RGB") if image.mode == "P" else image.mode
        pixels = np.asarray(image.convert("L" if mode == "1" else mode))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def plain_records(file: Path) -> Iterable[bytes]:
    """Read the framing of TFRecords by hand."""
    data, at = file.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + size]
        at += size + 16
