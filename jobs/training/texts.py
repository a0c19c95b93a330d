"""Datasets of texts whose words or word pieces are token ids."""

from __future__ import annotations

import json
from typing import NamedTuple

import tensorflow as tf

from training.shards import read_text


class Texts(NamedTuple):
    """The sizes of such a dataset, and how its records are parsed."""

    vocabulary: int
    """Number of token ids."""
    length: int
    """Tokens per text, padding included."""
    classes: int
    """Number of labels."""

    def parse(self, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tokens of a serialized example, int32 of shape (length,), and its label, int32."""
        features = {
            "tokens": tf.io.FixedLenFeature([self.length], tf.int64),
            "label": tf.io.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_single_example(record, features)
        return tf.cast(example["tokens"], tf.int32), tf.cast(example["label"], tf.int32)


def describe_texts(data: str) -> Texts:
    """Read the sizes from features.json, vocabulary.txt and label.labels.txt in the folder `data`."""
    features = json.loads(read_text(data, "features.json"))["featuresDict"]["features"]
    return Texts(
        vocabulary=read_text(data, "vocabulary.txt").count("\n"),
        length=int(features["tokens"]["tensor"]["shape"]["dimensions"][0]),
        classes=read_text(data, "label.labels.txt").count("\n"),
    )
