"""What there is to know of a dataset of texts that were made token ids."""

from __future__ import annotations

import json
from typing import NamedTuple

import tensorflow as tf

from training.shards import read_text


class Texts(NamedTuple):
    """What the dataset's own files say of its texts."""

    vocabulary: int
    """Entries."""
    length: int
    """Tokens of a text."""
    classes: int

    def parse(self, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tokens of a serialized example, int32 of shape (length,), and its label, int32."""
        features = {
            "tokens": tf.io.FixedLenFeature([self.length], tf.int64),
            "label": tf.io.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_single_example(record, features)
        return tf.cast(example["tokens"], tf.int32), tf.cast(example["label"], tf.int32)


def describe_texts(data: str) -> Texts:
    """Return what the files of the dataset in the folder `data` say."""
    features = json.loads(read_text(data, "features.json"))["featuresDict"]["features"]
    return Texts(
        vocabulary=read_text(data, "vocabulary.txt").count("\n"),
        length=int(features["tokens"]["tensor"]["shape"]["dimensions"][0]),
        classes=read_text(data, "label.labels.txt").count("\n"),
    )
