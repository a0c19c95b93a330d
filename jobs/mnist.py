# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "mnist"
# framework = "tensorflow"
# ///
"""Train the network of TensorFlow's TPU guide on MNIST with Keras' `fit`.

    tpuctl submit jobs/mnist.py                              on a Cloud TPU
    python jobs/mnist.py --data FOLDER --out FOLDER          on this machine, without a TPU

As in the guide: 5 epochs, 200 images per step, 50 steps per call from Python. The guide's validation accuracy
is 0.988.
"""

from __future__ import annotations

import argparse

import tensorflow as tf
import training


def main() -> None:
    """Train, and report the accuracy on the test images after each epoch."""
    options = parse_arguments()
    strategy = training.choose_strategy(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model(options.filters)
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.add_estimate(lambda: build_model(options.filters), (28, 28, 1), tf.uint8)
    with strategy.scope():
        model.compile(
            optimizer=optimizer,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
            steps_per_execution=progress.steps_per_call,
            jit_compile=False,  # a TPU compiles each replica's step by itself
        )
    validation = strategy.distribute_datasets_from_function(
        lambda context: training.read_once(test, context, batch, parse)
    )
    progress.instrument(model, validation)
    for arguments in progress.fit_arguments(options.epochs):
        batches = strategy.distribute_datasets_from_function(
            lambda context: training.read(train, context, batch, parse, seed=options.seed, step=progress.step)
        )
        model.fit(batches, callbacks=[progress], shuffle=False, verbose=0, **arguments)
    progress.save_weights(model, "mnist")
    progress.finish()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = training.parser(__doc__, epochs=5, batch=200, steps_per_call=50)
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


if __name__ == "__main__":
    main()
