# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "mnist"
# framework = "tensorflow"
# ///
"""Train the network of TensorFlow's TPU guide on MNIST with a custom training loop.

    tpuctl submit jobs/mnist_custom_loop.py                          on a Cloud TPU
    python jobs/mnist_custom_loop.py --data FOLDER --out FOLDER      on this machine, without a TPU

As in the guide: 5 epochs with one step per call from Python, then a sixth with all its steps in one call.
The guide's training accuracy is 0.9961 after the fifth epoch and 0.9974 after the sixth.
"""

from __future__ import annotations

import argparse
from typing import Any

import tensorflow as tf
import training


def main() -> None:
    """Train; report the training accuracy after each epoch and the test accuracy at the end."""
    options = parse_arguments()
    strategy = training.choose_strategy(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model(options.filters)
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        loss = tf.keras.metrics.Mean()
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    metrics = {"loss": loss, "accuracy": accuracy}
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model, **metrics)
    progress.add_estimate(lambda: build_model(options.filters), (28, 28, 1), tf.uint8)

    def train_step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            mean = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        gradients = tape.gradient(mean, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        loss.update_state(losses)
        accuracy.update_state(labels, logits)

    @tf.function
    def train_one_step(batches: training.TimedBatches) -> None:
        strategy.run(train_step, args=next(batches))

    @tf.function
    def train_steps(batches: training.TimedBatches, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):  # this loop runs on the TPU's host, without Python
            strategy.run(train_step, args=next(batches))

    batches = progress.time_input(
        strategy.distribute_datasets_from_function(
            lambda context: training.read(train, context, batch, parse, seed=options.seed, step=progress.step)
        )
    )
    for epoch in progress.epochs(options.epochs):
        in_one_call = epoch > options.epochs - options.epochs_in_one_call
        for count in progress.calls(steps if in_one_call else None):
            if in_one_call:
                train_steps(batches, tf.constant(count))
            else:
                train_one_step(batches)
        progress.report(epoch, loss=loss.result(), accuracy=accuracy.result())
        loss.reset_state()
        accuracy.reset_state()
    progress.finish(test_accuracy=evaluate(strategy, model, test, batch))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = training.parser(__doc__, epochs=6, batch=200)
    parser.add_argument(
        "--epochs-in-one-call",
        type=int,
        default=1,
        metavar="EPOCHS",
        help="last epochs that run in one call from Python each",
    )
    parser.add_argument("--filters", type=int, default=256, help="filters of both convolutions")
    return parser.parse_args()


def build_model(filters: int) -> tf.keras.Model:
    """Return the untrained network, with 38 million weights for 256 filters; it returns logits."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(filters, 3, activation="relu"),
            layers.Conv2D(filters, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image (uint8) and the label (int32) of a serialized example."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.ensure_shape(tf.io.decode_png(example["image"], channels=1), (28, 28, 1))
    return image, tf.cast(example["label"], tf.int32)


def evaluate(
    strategy: tf.distribute.Strategy, model: tf.keras.Model, test: training.Split, batch: int
) -> float:
    """Return the accuracy on the test images; each image counts once."""
    batches = strategy.distribute_datasets_from_function(
        lambda context: training.read_once(test, context, batch, parse)
    )

    def count(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        correct = tf.argmax(model(images, training=False), axis=1, output_type=tf.int32) == labels
        return tf.stack([tf.reduce_sum(weights * tf.cast(correct, tf.float32)), tf.reduce_sum(weights)])

    @tf.function
    def count_on_all_replicas(images: Any, labels: Any, weights: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(count, args=(images, labels, weights)), axis=None)

    correct, weight = sum(count_on_all_replicas(*batch) for batch in batches).numpy().tolist()
    accuracy: float = correct / weight
    training.say(f"test accuracy {accuracy:.4f} on {test.examples} images")
    return accuracy


if __name__ == "__main__":
    main()
