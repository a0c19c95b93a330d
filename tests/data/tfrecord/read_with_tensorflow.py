"""Reads shards and images of all modes with TensorFlow, in a process that also encodes; prints JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from tpuctl.data.tfrecord.example_encoding import encode

VALUES = {"b": [b"\0\xff", b""], "f": [0.5, -1e30], "i": [-1, 2**62], "s": "text", "a": 7}


def main(folder: Path) -> None:
    before = encode(VALUES)  # the private message class is made first, then TensorFlow's own
    import tensorflow as tf

    shards = sorted(str(file) for file in folder.glob("*.tfrecord-*"))
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    parsed = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(shards)]
    own = tf.train.Example.FromString(before)
    decoded = {
        file.name: tf.io.decode_image(file.read_bytes(), dtype=_dtype(tf, file))
        for file in sorted((folder / "modes").iterdir())
    }
    report = {
        "records": sorted(
            [int(example["label"]), list(tf.io.decode_image(example["image"]).shape)] for example in parsed
        ),
        "same_bytes": own.SerializeToString(deterministic=True) == before == encode(VALUES),
        "fields": sorted(own.features.feature),
        "modes": {name: [*image.shape, image.dtype.name] for name, image in decoded.items()},
    }
    with tf.io.TFRecordWriter(str(folder / "theirs")) as writer:
        for record in (b"", b"tpu", before):
            writer.write(record)
    print(json.dumps(report))


def _dtype(tf: object, file: Path) -> object:
    return tf.uint16 if file.stem.endswith("16") else tf.uint8  # type: ignore[attr-defined]


main(Path(sys.argv[1]))
