"""A small dataset of token ids, as `tpuctl data upload --tokens` writes one, by TensorFlow's own writer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

PADDING, FIRST = 0, 5
"""The ids from FIRST on are words."""


def texts(count: int, *, words: int, length: int, classes: int, seed: int) -> tuple[NDArray, NDArray]:
    """Return tokens (count, length), of which a quarter occur in texts of one class only, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    tokens = rng.integers(FIRST + classes, words, size=(count, length))
    typical = rng.random(tokens.shape) < 0.25
    tokens = np.where(typical, FIRST + labels[:, None], tokens)
    lengths = rng.integers(length // 2, length + 1, size=count)
    tokens[np.arange(length) >= lengths[:, None]] = PADDING
    return tokens, labels


def write(folder: Path, *, words: int, length: int, classes: int, train: int, test: int) -> None:
    """Write both splits, two shards each, and the files that describe them."""
    folder.mkdir(parents=True)
    splits = []
    for name, count, seed in (("train", train, 1), ("test", test, 2)):
        tokens, labels = texts(count, words=words, length=length, classes=classes, seed=seed)
        for shard in range(2):
            path = folder / f"small-{name}.tfrecord-{shard:05d}-of-00002"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for text, label in zip(tokens[shard::2], labels[shard::2], strict=True):
                    writer.write(_example(text, label))
        splits.append({"name": name, "shardLengths": [str(-(-count // 2)), str(count // 2)]})
    features = {"tokens": {"tensor": {"shape": {"dimensions": [str(length)]}, "dtype": "int64"}}}
    _write(folder, "features.json", json.dumps({"featuresDict": {"features": features}}))
    _write(folder, "dataset_info.json", json.dumps({"name": "small", "splits": splits}))
    _write(folder, "vocabulary.txt", "".join(f"word{number}\n" for number in range(words)))
    _write(folder, "label.labels.txt", "".join(f"class{number}\n" for number in range(classes)))


def _example(tokens: NDArray, label: int) -> bytes:
    def numbers(values: list[int]) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    features = {"tokens": numbers(tokens.tolist()), "label": numbers([int(label)])}
    serialized: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return serialized


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
