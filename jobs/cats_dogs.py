# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "cats_dogs"
# framework = "tensorflow"
# ///
"""Train a small convolutional network to tell two classes of pictures apart, with Keras' `fit`.

    tpuctl data upload cats_dogs FOLDER                      of FOLDER/train/cat/*.jpg, FOLDER/test/dog/*.jpg
    tpuctl submit jobs/cats_dogs.py                          on a Cloud TPU
    python jobs/cats_dogs.py --data SHARDS --out FOLDER      on this machine, without a TPU

Pictures of any size become 128x128, are kept in memory so, and are sheared, zoomed and flipped differently
each time: on the host, as a TPU has no such operation. Each test picture counts once, whatever the batch.
The weights are in cats_dogs.weights.h5; `build_model().load_weights` reads them.
"""

from __future__ import annotations

import tensorflow as tf
import training

SIDE = 128
SHEAR = 0.2
"""Most radians by which upright lines are tilted; Keras' `ImageDataGenerator` took such a 0.2 for degrees."""
ZOOM = 0.2
"""Width and height are those of 0.8 to 1.2 times as much of the picture, each by itself."""


def main() -> None:
    """Train, say after each epoch how many of the test pictures are told rightly, and save the weights."""
    options = training.parser(__doc__, epochs=30, batch=128, steps_per_call=20).parse_args()
    strategy = training.find_devices(options.seed, options.precision)
    train = training.find_split(options.data, "train")
    test = training.find_split(options.data, "test", "validation")
    classes = training.read_text(options.data, "label.labels.txt").strip("\n").split("\n")
    if len(classes) != 2:
        found = f"{len(classes)}: {', '.join(classes)}"
        raise SystemExit(f"Two classes are told apart here; the dataset has {found}.")
    batch = training.whole_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model()
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.expect(build_model, (SIDE, SIDE, 3), tf.uint8)
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
    progress.watch(model, validation)
    for part in progress.parts(options.epochs):
        batches = strategy.distribute_datasets_from_function(
            lambda context: training.read(
                train, context, batch, parse, seed=options.seed, step=progress.step, augment=augment
            )
        )
        model.fit(batches, callbacks=[progress], shuffle=False, verbose=0, **part)
    progress.save_weights(model, "cats_dogs")
    progress.finish()


def build_model() -> tf.keras.Model:
    """Return the untrained network: pictures (batch, 128, 128, 3) uint8 to logits (batch, 1) of class 1."""
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
    """Return for each example 1.0 if its logit is on the right side of 0."""
    return tf.cast((logits[:, 0] > 0) == (labels[:, 0] > 0), tf.float32)


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the picture, (128, 128, 3) uint8, and the label, 0.0 or 1.0 of shape (1,)."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    picture = tf.io.decode_image(example["image"], channels=3, expand_animations=False)
    picture = tf.cast(tf.round(tf.image.resize(picture, (SIDE, SIDE), antialias=True)), tf.uint8)
    return picture, tf.cast(example["label"], tf.float32)[tf.newaxis]


def augment(picture: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the picture sheared, zoomed and perhaps flipped, all by one affine map; the label stays.

    What comes in from outside the picture has the colour of its nearest edge.
    """
    shear, wide, high, flip = tf.unstack(tf.random.stateless_uniform([4], seed, -1.0, 1.0))
    angle = SHEAR * shear
    wide, high = (1 + ZOOM * wide) * tf.sign(flip), 1 + ZOOM * high
    # a pixel (x, y), from the middle, is taken from (a x + b y, c x + d y)
    a, b, c, d = wide, -high * tf.sin(angle), 0.0, high * tf.cos(angle)
    middle = (SIDE - 1) / 2
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=picture[tf.newaxis],
        transforms=[[a, b, middle * (1 - a - b), c, d, middle * (1 - c - d), 0.0, 0.0]],
        output_shape=(SIDE, SIDE),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
    return tf.ensure_shape(moved[0], (SIDE, SIDE, 3)), label


if __name__ == "__main__":
    main()
