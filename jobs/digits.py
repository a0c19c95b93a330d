# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "digits"
# framework = "tensorflow"
# ///
"""Train a small network to read handwritten digits: on a Cloud TPU, or without one on this machine.

Environment (places are folders or gs:// addresses):

    TPUCTL_DATA_DIR         TFRecord shards digits-train.tfrecord-*: `image` (PNG, 8x8 grey), `label` (int64)
    TPUCTL_CHECKPOINT_DIR   checkpoints; training goes on from the last one
    TPUCTL_TENSORBOARD_DIR  loss, accuracy and speed for TensorBoard
    TPUCTL_MODEL_DIR        result.json, the last epoch's numbers
    TPU_NAME                `local` on a TPU VM, the node's name on a slice of several hosts
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, NamedTuple

import tensorflow as tf

SEED = 7
IMAGE_SHAPE = (8, 8, 1)
CLASSES = 10


class Numbers(NamedTuple):
    """What one epoch came to."""

    epoch: int
    loss: float
    accuracy: float
    images_per_second: float

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch:2d}  loss {self.loss:.4f}  accuracy {self.accuracy:.4f}  "
            f"{self.images_per_second:,.0f} images/s"
        )


def build_model() -> tf.keras.Model:
    """Return the untrained network; its outputs are logits."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input(IMAGE_SHAPE),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(CLASSES),
        ]
    )


def main() -> None:
    """Train, and leave checkpoints, TensorBoard events and the result where the environment says."""
    options = parse_arguments()
    data = os.environ.get("TPUCTL_DATA_DIR")
    if not data:
        print(
            "digits: set TPUCTL_DATA_DIR to the folder of the digits-train.tfrecord-* files.", file=sys.stderr
        )
        raise SystemExit(2)
    tf.keras.utils.set_random_seed(SEED)
    strategy = find_devices()
    numbers = train(strategy, data, options.epochs, options.batch, options.checkpoint_every)
    place = os.environ.get("TPUCTL_MODEL_DIR")
    if place and numbers:
        tf.io.gfile.makedirs(place)
        with tf.io.gfile.GFile(os.path.join(place, "result.json"), "w") as file:
            file.write(json.dumps(numbers._asdict()))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small network to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="images a step, over all replicas")
    parser.add_argument("--checkpoint-every", type=int, default=5, metavar="EPOCHS")
    return parser.parse_args()


def find_devices() -> tf.distribute.Strategy:
    """Return the strategy for the TPU that TPU_NAME names, or without one for this machine."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    except ValueError:  # no TPU is named
        return tf.distribute.get_strategy()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def train(
    strategy: tf.distribute.Strategy, data: str, epochs: int, batch: int, checkpoint_every: int
) -> Numbers | None:
    """Train up to `epochs` epochs, from the last checkpoint on; returns the last epoch's numbers."""
    files = sorted(tf.io.gfile.glob(os.path.join(data, "digits-train.tfrecord-*")))
    images = count_images(data, files)
    replicas = strategy.num_replicas_in_sync
    batch = batch // replicas * replicas
    steps = images // batch if batch else 0
    if not steps:
        raise SystemExit(f"digits: the {images} training images in {data} do not fill one batch of {batch}.")
    say(f"{replicas} replicas, {images} images in {len(files)} files, {steps} steps of {batch} an epoch")

    with strategy.scope():
        model = build_model()
        optimizer = tf.keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64, trainable=False)
    manager = checkpoints(model=model, optimizer=optimizer, epoch=done)
    writer = tensorboard()
    first = int(done.numpy())
    batches = iter(strategy.experimental_distribute_dataset(read_epochs(files, images, batch, first, epochs)))
    run_epoch = make_run_epoch(strategy, model, optimizer, batch)

    numbers = None
    for epoch in range(first + 1, epochs + 1):
        started = time.perf_counter()
        loss, correct = (run_epoch(batches, tf.constant(steps)) / (steps * batch)).numpy().tolist()
        numbers = Numbers(epoch, loss, correct, steps * batch / (time.perf_counter() - started))
        say(str(numbers))
        done.assign(epoch)
        write_scalars(writer, numbers)
        if manager and (epoch % checkpoint_every == 0 or epoch == epochs):
            say(f"checkpoint {manager.save(checkpoint_number=epoch)}")
            writer.flush()
    return numbers


def count_images(data: str, files: list[str]) -> int:
    """Return the number of training images: from the dataset's own description, else by counting."""
    description = os.path.join(data, "dataset_info.json")
    if tf.io.gfile.exists(description):
        with tf.io.gfile.GFile(description) as file:
            splits = {split["name"]: split for split in json.load(file)["splits"]}
        return sum(int(length) for length in splits["train"]["shardLengths"])
    return sum(1 for _ in tf.data.TFRecordDataset(files))


def read_epochs(files: list[str], images: int, batch: int, first: int, last: int) -> tf.data.Dataset:
    """Return the batches of the epochs after `first`; an epoch's order depends on its number alone."""
    examples = tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=tf.data.AUTOTUNE).cache()

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffled = examples.shuffle(images, seed=SEED + epoch, reshuffle_each_iteration=False)
        return shuffled.batch(batch, drop_remainder=True)  # a TPU wants every batch of one shape

    return tf.data.Dataset.range(first, last).flat_map(one_epoch).prefetch(tf.data.AUTOTUNE)


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image, float32 from 0 to 1, and the label of a serialized example."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.ensure_shape(tf.io.decode_png(example["image"], channels=1), IMAGE_SHAPE)
    return tf.cast(image, tf.float32) / 255.0, tf.cast(example["label"], tf.int32)


def make_run_epoch(
    strategy: tf.distribute.Strategy,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    batch: int,
) -> Any:
    """Return a function that trains `steps` batches and gives the sums of losses and of right answers."""

    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / batch  # the replicas' gradients are added up
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        right = tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(tf.cast(right, tf.float32))])

    @tf.function
    def run_epoch(batches: Any, steps: tf.Tensor) -> tf.Tensor:
        sums = tf.zeros(2)
        for _ in tf.range(steps):  # the loop runs on the TPU's host: Python is not asked between steps
            sums += strategy.reduce("SUM", strategy.run(step, args=next(batches)), axis=None)
        return sums

    return run_epoch


def checkpoints(**tracked: Any) -> tf.train.CheckpointManager | None:
    """Return the keeper of the checkpoints, with `tracked` restored from the last one if there is one."""
    place = os.environ.get("TPUCTL_CHECKPOINT_DIR")
    if not place:
        return None
    checkpoint = tf.train.Checkpoint(**tracked)
    manager = tf.train.CheckpointManager(checkpoint, place, max_to_keep=3)
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_consumed()
        say(f"going on from {manager.latest_checkpoint}")
    return manager


def tensorboard() -> tf.summary.SummaryWriter:
    """Return the writer of TensorBoard's events."""
    place = os.environ.get("TPUCTL_TENSORBOARD_DIR")
    return tf.summary.create_file_writer(place) if place else tf.summary.create_noop_writer()


def write_scalars(writer: tf.summary.SummaryWriter, numbers: Numbers) -> None:
    """Add an epoch to TensorBoard's curves (tf.summary.scalar would need the tensorboard package)."""
    kind = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    with writer.as_default(step=numbers.epoch):
        for name in ("loss", "accuracy", "images_per_second"):
            value = tf.constant(getattr(numbers, name), tf.float32)
            tf.summary.write(name, value, metadata=tf.compat.v1.SummaryMetadata(plugin_data=kind))


def say(line: str) -> None:
    """Print a line of the log at once."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
