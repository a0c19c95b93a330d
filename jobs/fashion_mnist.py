# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "fashion_mnist"
# framework = "tensorflow"
# ///
"""Train the small convolutional network of the TensorFlow handbook on Fashion-MNIST with Keras' `fit`.

    tpuctl submit jobs/fashion_mnist.py                              on a Cloud TPU
    python jobs/fashion_mnist.py --data FOLDER --out FOLDER          on this machine, without a TPU

As in the handbook: 5 epochs of 60 steps, 1,000 images per step. The handbook's validation accuracy is 0.8848
with pixels from 0 to 255. Here they are rescaled to 0 to 1, the range that the initial weights are made for.
"""

from __future__ import annotations

import tensorflow as tf
import training


def main() -> None:
    """Train, and report the accuracy on the test images after each epoch."""
    options = training.parser(__doc__, epochs=5, batch=1000, steps_per_call=20).parse_args()
    strategy = training.choose_strategy(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model()
        optimizer = tf.keras.optimizers.Adam(3e-3)  # the handbook has 1e-3, for pixels from 0 to 255
        optimizer.build(model.trainable_variables)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.add_estimate(build_model, (28, 28, 1), tf.uint8)
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
    progress.save_weights(model, "fashion_mnist")
    progress.finish()


def build_model() -> tf.keras.Model:
    """Return the untrained network: images (batch, 28, 28, 1) uint8 to logits (batch, 10)."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(64, 3),
            layers.MaxPooling2D(2),
            layers.Activation("relu"),
            layers.Flatten(),
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
