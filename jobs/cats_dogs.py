# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "cats_dogs"
# framework = "tensorflow"
# ///
"""Train a small convolutional network to classify images of two classes, with Keras' `fit`.

    tpuctl data upload cats_dogs FOLDER                      FOLDER/train/cat/*.jpg, FOLDER/test/dog/*.jpg
    tpuctl submit jobs/cats_dogs.py                          on a Cloud TPU
    python jobs/cats_dogs.py --data SHARDS --out FOLDER      on this machine, without a TPU

Images of any size are resized to 128x128 and cached in memory. Each time one is used, the host shears, zooms
and flips it at random; a TPU has no operation for that. Each test image counts once, whatever the batch size.
The weights are saved to cats_dogs.weights.h5; `build_model().load_weights` loads them.
"""

from __future__ import annotations

import tensorflow as tf
import training

SIDE = 128
SHEAR = 0.2
"""Largest shear angle in radians; Keras' `ImageDataGenerator` read the same 0.2 as degrees."""
ZOOM = 0.2
"""Width and height are zoomed separately, by a factor from 0.8 to 1.2."""


def main() -> None:
    """Train, report the accuracy on the test images after each epoch, and save the weights."""
    options = training.parser(__doc__, epochs=30, batch=128, steps_per_call=20).parse_args()
    strategy = training.choose_strategy(options.seed, options.precision)
    train = training.find_split(options.data, "train")
    test = training.find_split(options.data, "test", "validation")
    classes = training.read_text(options.data, "label.labels.txt").strip("\n").split("\n")
    if len(classes) != 2:
        names = ", ".join(classes)
        raise SystemExit(f"This job needs a dataset of 2 classes; this one has {len(classes)}: {names}.")
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model()
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.add_estimate(build_model, (SIDE, SIDE, 3), tf.uint8)
    with strategy.scope():
        model.compile(
            optimizer=optimizer,
            loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
            weighted_metrics=[accuracy],
            steps_per_execution=progress.steps_per_call,
            jit_compile=False,  # a TPU compiles each replica's step by itself
        )

    validation = strategy.distribute_datasets_from_function(
        lambda context: training.read_once(test, context, batch, parse)
    )
    progress.instrument(model, validation)
    for arguments in progress.fit_arguments(options.epochs):
        batches = strategy.distribute_datasets_from_function(
            lambda context: training.read(
                train, context, batch, parse, seed=options.seed, step=progress.step, augment=augment
            )
        )
        model.fit(batches, callbacks=[progress], shuffle=False, verbose=0, **arguments)
    progress.save_weights(model, "cats_dogs")
    progress.finish()


def build_model() -> tf.keras.Model:
    """Return the untrained network: images (batch, 128, 128, 3) uint8 to logits (batch, 1) of class 1."""
    layers = tf.keras.layers

    def stage(filters: int) -> list[tf.keras.layers.Layer]:
        convolution = layers.Conv2D(
            filters, 3, padding="same", activation="relu", kernel_initializer="he_uniform"
        )
        return [convolution, layers.MaxPooling2D(2)]

    return tf.keras.Sequential(
        [
            tf.keras.Input((SIDE, SIDE, 3), dtype="uint8"),  # a quarter of the bytes of float32 to the TPU
            layers.Rescaling(1 / 255),
            *stage(32),
            *stage(64),
            *stage(128),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(1, dtype="float32"),
        ]
    )


def accuracy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return 1.0 for each example that is classified correctly, else 0.0."""
    return tf.cast((logits[:, 0] > 0) == (labels[:, 0] > 0), tf.float32)


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image, (128, 128, 3) uint8, and the label, 0.0 or 1.0 of shape (1,)."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.io.decode_image(example["image"], channels=3, expand_animations=False)
    image = tf.cast(tf.round(tf.image.resize(image, (SIDE, SIDE), antialias=True)), tf.uint8)
    return image, tf.cast(example["label"], tf.float32)[tf.newaxis]


def augment(image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image sheared, zoomed and flipped at random, by one affine transform, and its label.

    Pixels from outside the image take the colour of the nearest edge.
    """
    shear, width, height, flip = tf.unstack(tf.random.stateless_uniform([4], seed, -1.0, 1.0))
    angle = SHEAR * shear
    width, height = (1 + ZOOM * width) * tf.sign(flip), 1 + ZOOM * height
    # a pixel at (x, y) from the middle takes its value from (a x + b y, c x + d y)
    a, b, c, d = width, -height * tf.sin(angle), 0.0, height * tf.cos(angle)
    middle = (SIDE - 1) / 2
    transformed = tf.raw_ops.ImageProjectiveTransformV3(
        images=image[tf.newaxis],
        transforms=[[a, b, middle * (1 - a - b), c, d, middle * (1 - c - d), 0.0, 0.0]],
        output_shape=(SIDE, SIDE),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
    return tf.ensure_shape(transformed[0], (SIDE, SIDE, 3)), label


if __name__ == "__main__":
    main()
