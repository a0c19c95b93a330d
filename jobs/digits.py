# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "digits"
# framework = "tensorflow"
# ///
"""Train a small network to classify handwritten digits, with a custom training loop.

    tpuctl submit jobs/digits.py                              on a Cloud TPU
    python jobs/digits.py --data FOLDER --out FOLDER          on this machine, without a TPU

The data are TFRecord shards `digits-train.tfrecord-*` with `image` (PNG, 8x8 greyscale) and `label` (int64).
"""

from __future__ import annotations

import tensorflow as tf
import training


def main() -> None:
    """Train, and write checkpoints, TensorBoard events and result.json."""
    # float32: a network this small gains nothing from bfloat16
    options = training.parser(
        __doc__, epochs=20, batch=128, steps_per_call=11, precision="float32"
    ).parse_args()
    strategy = training.choose_strategy(options.seed, options.precision)
    train = training.find_split(options.data, "train")
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)
    training.say(f"{train.examples} images in {len(train.files)} files, {steps} steps of {batch} an epoch")

    with strategy.scope():
        model = build_model()
        optimizer = tf.keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)
        sums = tf.Variable(tf.zeros(3), trainable=False)  # of losses, correct predictions, images
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model, sums=sums)

    def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / batch  # the optimizer sums the gradients of the replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        correct = tf.cast(tf.argmax(logits, axis=1, output_type=tf.int32) == labels, tf.float32)
        return tf.stack([tf.reduce_sum(values) for values in (losses, correct, tf.ones_like(losses))])

    @tf.function
    def train_steps(batches: training.TimedBatches, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):  # this loop runs on the TPU's host, without Python
            sums.assign_add(strategy.reduce("SUM", strategy.run(train_step, args=next(batches)), axis=None))

    batches = progress.time_input(
        strategy.distribute_datasets_from_function(
            lambda context: training.read(train, context, batch, parse, seed=options.seed, step=progress.step)
        )
    )
    for epoch in progress.epochs(options.epochs):
        for count in progress.calls():
            train_steps(batches, tf.constant(count))
        loss, correct, images = sums.numpy().tolist()
        progress.report(epoch, loss=loss / images, accuracy=correct / images)
        sums.assign(tf.zeros(3))
    progress.finish()


def build_model() -> tf.keras.Model:
    """Return the untrained network: images (batch, 8, 8, 1) uint8 to logits (batch, 10)."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10, dtype="float32"),
        ]
    )


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image (uint8) and the label (int32) of a serialized example."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.ensure_shape(tf.io.decode_png(example["image"], channels=1), (8, 8, 1))
    return image, tf.cast(example["label"], tf.int32)


if __name__ == "__main__":
    main()
