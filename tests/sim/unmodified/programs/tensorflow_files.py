"""TensorFlow's own gs:// as training programs use it; prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

SEEN: dict[str, Any] = {}
ROOT = "gs://sim-project-tpuctl/tensorflow"
gfile = tf.io.gfile


def refusal(call: Callable[[], Any]) -> str:
    """Return the kind of the error that `call` raises."""
    try:
        call()
    except tf.errors.OpError as error:
        return type(error).__name__
    return "nothing was raised"


def write(name: str, content: str, mode: str = "w") -> None:
    with gfile.GFile(f"{ROOT}/{name}", mode) as file:
        file.write(content)


def read(name: str) -> str:
    with gfile.GFile(f"{ROOT}/{name}") as file:
        return str(file.read())


def read_and_write() -> None:
    data = os.urandom(3 << 20)
    with gfile.GFile(f"{ROOT}/big", "wb") as file:
        file.write(data[: 1 << 20])
        file.flush()
        file.write(data[1 << 20 :])
    with gfile.GFile(f"{ROOT}/big", "rb") as file:
        file.seek(1000)
        part = file.read(5000)
        file.seek(0)
        SEEN["big"] = [part == data[1000:6000], file.read() == data, gfile.stat(f"{ROOT}/big").length]
    write("notes.txt", "one")
    write("notes.txt", " two", "a")
    write("notes.txt", " three", "a")
    SEEN["appended"] = read("notes.txt")
    write("notes.txt", "new")
    SEEN["overwritten"] = read("notes.txt")
    SEEN["missing"] = refusal(lambda: read("nothing"))
    SEEN["missing bucket"] = refusal(lambda: gfile.GFile("gs://no-such-bucket/a").read())


def arrange() -> None:
    for name in ("a/1.txt", "a/2.txt", "a/b/3.txt", "other.txt"):
        write(f"tree/{name}", name)
    gfile.makedirs(f"{ROOT}/tree/empty")
    SEEN["listed"] = sorted(gfile.listdir(f"{ROOT}/tree"))
    SEEN["empty"] = [gfile.isdir(f"{ROOT}/tree/empty"), gfile.listdir(f"{ROOT}/tree/empty")]
    SEEN["globbed"] = [path.removeprefix(ROOT) for path in sorted(gfile.glob(f"{ROOT}/tree/a/*.txt"))]
    SEEN["walked"] = sum(len(files) for _, _, files in gfile.walk(f"{ROOT}/tree"))
    SEEN["refused copy"] = refusal(lambda: gfile.copy(f"{ROOT}/tree/other.txt", f"{ROOT}/tree/a/1.txt"))
    gfile.copy(f"{ROOT}/tree/other.txt", f"{ROOT}/tree/a/1.txt", overwrite=True)
    SEEN["copied"] = read("tree/a/1.txt")
    gfile.rename(f"{ROOT}/tree/other.txt", f"{ROOT}/tree/named.txt")
    gfile.rename(f"{ROOT}/tree/a", f"{ROOT}/tree/moved")
    SEEN["renamed"] = [gfile.exists(f"{ROOT}/tree/{name}") for name in ("other.txt", "a/b/3.txt")]
    SEEN["moved"] = [read("tree/moved/b/3.txt"), read("tree/named.txt")]
    gfile.remove(f"{ROOT}/tree/named.txt")
    gfile.rmtree(f"{ROOT}/tree/moved")
    SEEN["left"] = sorted(gfile.listdir(f"{ROOT}/tree"))


def keep_records() -> None:
    for shard in range(2):
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        with tf.io.TFRecordWriter(f"{ROOT}/records/part-{shard}", options) as writer:
            for number in range(500):
                writer.write(f"{shard} {number}".encode())
    files = tf.data.Dataset.list_files(f"{ROOT}/records/part-*", shuffle=False)
    records = tf.data.TFRecordDataset(files, compression_type="GZIP", num_parallel_reads=2)
    SEEN["records"] = sum(1 for _ in records)


def keep_checkpoints() -> None:
    step, value = tf.Variable(0), tf.Variable(tf.zeros([1000, 100]))
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step, value=value), f"{ROOT}/checkpoints", max_to_keep=2
    )
    for number in range(1, 4):
        step.assign(number)
        value.assign(tf.fill([1000, 100], float(number)))
        manager.save()
    step.assign(0)
    manager.checkpoint.restore(tf.train.latest_checkpoint(f"{ROOT}/checkpoints")).assert_consumed()
    SEEN["restored"] = [int(step), float(tf.reduce_mean(value))]
    SEEN["checkpoints"] = sorted(gfile.listdir(f"{ROOT}/checkpoints"))


def keep_summaries() -> None:
    with tf.summary.create_file_writer(f"{ROOT}/tensorboard").as_default() as writer:
        for step in range(3):
            tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
            writer.flush()
        tf.summary.scalar("loss", 0.25, step=3)
    writer.close()
    (events,) = gfile.glob(f"{ROOT}/tensorboard/events.*")
    losses = [
        round(float(tf.make_ndarray(value.tensor)), 2)
        for event in tf.compat.v1.train.summary_iterator(events)
        for value in event.summary.value
    ]
    SEEN["summaries"] = losses


def main() -> None:
    for part in (read_and_write, arrange, keep_records, keep_checkpoints, keep_summaries):
        part()
    gfile.rmtree(ROOT)
    SEEN["after rmtree"] = gfile.exists(f"{ROOT}/big")
    json.dump(SEEN, sys.stdout)


if __name__ == "__main__":
    main()
