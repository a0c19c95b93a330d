"""Write the images below PNG_FOLDER/train as TFRecord shards, by TensorFlow's own writer.

python write_shards.py PNG_FOLDER DATA_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

SHARDS = 4


def example(path: Path) -> bytes:
    """Return the serialized example of an image in a folder named after its digit."""
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[path.read_bytes()]))
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(path.parent.name)]))
    features = tf.train.Features(feature={"image": image, "label": label})
    serialized: bytes = tf.train.Example(features=features).SerializeToString()
    return serialized


def main() -> None:
    pictures, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True)
    paths = sorted((pictures / "train").glob("*/*.png"), key=lambda path: path.name)
    lengths = []
    for shard in range(SHARDS):
        chosen = paths[shard::SHARDS]
        name = f"digits-train.tfrecord-{shard:05d}-of-{SHARDS:05d}"
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for path in chosen:
                writer.write(example(path))
        lengths.append(str(len(chosen)))
    info = {"name": "digits", "splits": [{"name": "train", "shardLengths": lengths}]}
    (folder / "dataset_info.json").write_text(json.dumps(info))


if __name__ == "__main__":
    main()
