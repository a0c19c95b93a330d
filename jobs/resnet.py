# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "imagenet"
# framework = "tensorflow"
# ///
"""Train ResNet-50 on ImageNet, or on any pictures in class folders, by a custom training loop.

    tpuctl data upload imagenet FOLDER --for v3-8    FOLDER/train/CLASS/*.jpg, FOLDER/validation/CLASS/*.jpg
    tpuctl submit jobs/resnet.py                     or: python jobs/resnet.py --data SHARDS --out RESULTS

The network is ResNet-50 v1.5 (He et al. 2015, arXiv:1512.03385; the 3x3 convolution of a block has the
stride). The recipe is that of He et al. 2018 (arXiv:1812.01187): a learning rate that grows with the batch,
warm-up, cosine, label smoothing, no weight decay of biases and batch normalisation; above a batch of 8,192
LARS. Google's own figures for a v3-8 are over 4,000 images/s and 93 % top-5 accuracy; this file has not been
run on a TPU.

Environment (places are folders or gs:// addresses):

    TPUCTL_DATA_DIR         TFRecord shards of the splits train and validation, or test: `image` (JPEG or PNG
                            of any size), `label` (int64); label.labels.txt
    TPUCTL_CHECKPOINT_DIR   checkpoints; training goes on from the last one
    TPUCTL_TENSORBOARD_DIR  loss, accuracy and speed for TensorBoard
    TPUCTL_MODEL_DIR        result.json, resnet.weights.h5
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import training

DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Layers of the network -> residual blocks of each of the four stages; of three convolutions from 50 on."""
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Of the red, green and blue values of ImageNet's pictures, 0 to 255."""
SMOOTHING = 0.1
"""Share of the label that is spread evenly over all classes (Szegedy et al. 2015, arXiv:1512.00567)."""
MOMENTUM = 0.9
TRUST = 0.001
"""LARS: how far a layer may move in a step, in terms of its own length, at a learning rate of 1."""
LARGEST_SGD_BATCH = 8192
"""Up to here SGD reaches the accuracy of small batches (Goyal et al. 2017, arXiv:1706.02677)."""


class Recipe(NamedTuple):
    """What an optimizer wants: `rate` is the highest at `batch`, and grows with the batch to the `power`."""

    rate: float
    batch: int
    power: float
    warmup: int
    """Epochs."""

    def peak(self, batch: int) -> float:
        """Return the highest learning rate."""
        return float(self.rate * (batch / self.batch) ** self.power)


RECIPES = {
    "sgd": Recipe(0.1, 256, 1.0, 5),  # Goyal et al. 2017
    "lars": Recipe(31.2, 32768, 0.5, 25),  # MLPerf 0.6 on TPU v3 (Kumar et al. 2019, arXiv:1909.09756)
}


def build_model(classes: int, depth: int = 50, size: int = 224) -> tf.keras.Model:
    """Return the untrained network: pictures (batch, size, size, 3) uint8 to logits (batch, classes)."""
    layers = tf.keras.layers
    wide = 4 if depth >= 50 else 1

    def convolve(x: Any, filters: int, kernel: int, stride: int = 1) -> Any:
        start = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
        return layers.Conv2D(
            filters, kernel, stride, padding="same", use_bias=False, kernel_initializer=start
        )(x)

    def normalise(x: Any, gamma: str = "ones") -> Any:
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, gamma_initializer=gamma)(x)

    def relu(x: Any) -> Any:
        return layers.ReLU()(x)

    def block(x: Any, filters: int, stride: int) -> Any:
        shortcut = x
        if stride > 1 or x.shape[-1] != wide * filters:
            shortcut = normalise(convolve(x, wide * filters, 1, stride))
        if wide == 4:
            x = relu(normalise(convolve(x, filters, 1)))
        x = relu(normalise(convolve(x, filters, 3, stride)))
        x = convolve(x, wide * filters, 1 if wide == 4 else 3)
        x = normalise(x, gamma="zeros")  # each block begins as the identity
        return relu(layers.Add()([x, shortcut]))

    inputs = tf.keras.Input((size, size, 3), dtype="uint8")  # a quarter of the bytes of float32 to the TPU
    x = layers.Normalization(mean=MEAN, variance=[one**2 for one in DEVIATION], dtype="float32")(inputs)
    x = relu(normalise(convolve(x, 64, 7, 2)))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, blocks in enumerate(DEPTHS[depth]):
        for number in range(blocks):
            x = block(x, 64 * 2**stage, 2 if stage and not number else 1)
    x = layers.GlobalAveragePooling2D()(x)
    start = tf.keras.initializers.RandomNormal(stddev=0.01)
    return tf.keras.Model(inputs, layers.Dense(classes, kernel_initializer=start, dtype="float32")(x))


def main() -> None:
    """Train, and leave checkpoints, TensorBoard events and results where they belong."""
    options = parse_arguments()
    strategy = training.find_devices(options.seed, options.precision)
    split = training.find_split(options.data, "train")
    held_out = training.find_split(options.data, "validation", "test")
    classes = len(training.read_text(options.data, "label.labels.txt").strip("\n").split("\n"))
    batch = training.whole_batch(options.batch, strategy)
    steps = split.steps(batch)
    kind, schedule = choose_optimizer(options, batch, steps)
    training.say(
        f"{split.examples:,} images of {classes} classes, {steps:,} steps of {batch} an epoch, "
        f"{kind}, learning rate up to {schedule.peak:.4g}"
    )
    build = functools.partial(build_model, classes, options.depth, options.size)
    with strategy.scope():
        model = build()
        optimizer = tf.keras.optimizers.SGD(schedule, MOMENTUM, nesterov=kind == "sgd")
        optimizer.build(model.trainable_variables)
        metrics = {
            "loss": tf.keras.metrics.Mean(),
            "accuracy": tf.keras.metrics.SparseCategoricalAccuracy(),
        }
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model, **metrics)
    progress.expect(build, (options.size, options.size, 3), tf.uint8)
    prepare = prepare_gradients(kind, options.weight_decay)
    run_steps = make_run_steps(strategy, model, optimizer, prepare, metrics, batch)
    evaluate = make_evaluate(strategy, model, held_out, batch, options.size)
    batches = progress.wait_for(read_batches(strategy, split, batch, options, progress.step))

    for epoch in progress.epochs(options.epochs):
        for count in progress.calls():
            run_steps(batches, tf.constant(count))
        numbers = {name: float(metric.result()) for name, metric in metrics.items()}
        progress.report(epoch, **numbers, **evaluate())
        for metric in metrics.values():
            metric.reset_state()
    progress.save_weights(model, "resnet")
    progress.finish()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = training.parser(__doc__, epochs=90, batch=1024, steps_per_call=20)
    parser.add_argument("--depth", type=int, choices=DEPTHS, default=50, help="layers of the network")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side, as the network sees it")
    parser.add_argument("--optimizer", choices=("auto", *RECIPES), default="auto", help="auto: by the batch")
    parser.add_argument("--learning-rate", type=float, help="at its highest; by the batch, if not given")
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--warmup", type=float, metavar="EPOCHS")
    parser.add_argument("--shuffle", type=int, default=16384, help="pictures that are mixed, as files")
    return parser.parse_args()


# the input pipeline


def read_batches(
    strategy: tf.distribute.Strategy,
    split: training.Split,
    batch: int,
    options: argparse.Namespace,
    step: int,
) -> Any:
    """Return the batches after `step`: pictures (batch, size, size, 3) uint8, labels (batch,) int32."""

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training.read(
            split, context, batch, parse, seed=options.seed, step=step,
            augment=functools.partial(augment, size=options.size), cache=False, shuffle=options.shuffle,
        )  # fmt: skip

    return strategy.distribute_datasets_from_function(of_host)


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a picture as it is in its file, and its label."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return example["image"], tf.cast(example["label"], tf.int32)


def augment(
    encoded: tf.Tensor, label: tf.Tensor, seed: tf.Tensor, size: int = 224
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a random part of the picture, (size, size, 3) uint8, flipped or not, and the label.

    The part has 8 to 100 % of the area and a ratio of 3:4 to 4:3 (Szegedy et al. 2014, arXiv:1409.4842).
    """
    seeds = tf.random.split(seed, 2)
    picture = decode_window(encoded, functools.partial(random_window, seed=seeds[0]))
    flip = tf.random.stateless_uniform([], seeds[1]) < 0.5
    picture = tf.cond(flip, lambda: tf.reverse(picture, [1]), lambda: picture)
    return resize(picture, size), label


def central(encoded: tf.Tensor, label: tf.Tensor, size: int = 224) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the middle of the picture, (size, size, 3) uint8, and the label: always the same."""
    return resize(decode_window(encoded, functools.partial(central_window, size=size)), size), label


def decode_window(encoded: tf.Tensor, choose: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Return the pixels of the window (top, left, height, width) that `choose` gives for a picture's shape.

    Of a JPEG only the window is decoded. Colours are not interpolated between the pixels that share one
    (`fancy_upscaling`): so the window is, to the last bit, that of the whole picture decoded in the same way.
    """

    def jpeg() -> tf.Tensor:
        window = choose(tf.io.extract_jpeg_shape(encoded))
        return tf.io.decode_and_crop_jpeg(
            encoded, window, channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False
        )

    def png() -> tf.Tensor:
        picture = tf.io.decode_png(encoded, channels=3)
        top, left, height, width = tf.unstack(choose(tf.shape(picture)))
        return picture[top : top + height, left : left + width]

    return tf.cond(tf.io.is_jpeg(encoded), jpeg, png)


def random_window(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Return a window that depends on the seed alone."""
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape, tf.zeros([1, 0, 4]), seed, min_object_covered=0.0, aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0), max_attempts=10, use_image_if_no_bounding_boxes=True,
    )  # fmt: skip
    return tf.concat([begin[:2], extent[:2]], 0)


def central_window(shape: tf.Tensor, size: int) -> tf.Tensor:
    """Return the square in the middle: of 224 pixels, when the shorter side is made 256."""
    side = tf.cast(tf.cast(tf.minimum(shape[0], shape[1]), tf.float32) * (size / (size + 32)), tf.int32)
    side = tf.maximum(side, 1)
    return tf.stack([(shape[0] - side + 1) // 2, (shape[1] - side + 1) // 2, side, side])


def resize(picture: tf.Tensor, size: int) -> tf.Tensor:
    """Return it as (size, size, 3) uint8."""
    return tf.ensure_shape(
        tf.cast(tf.round(tf.image.resize(picture, [size, size])), tf.uint8), [size, size, 3]
    )


# the optimizer


class WarmupCosine(tf.keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of step 0, 1, ...: a line up to `peak` in `warmup` steps, then half a cosine to 0."""

    def __init__(self, peak: float, warmup: int, steps: int) -> None:
        self.peak, self.warmup, self.steps = peak, warmup, steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the rate."""
        step = tf.cast(step, tf.float32)
        share = (step - self.warmup) / max(self.steps - self.warmup, 1)
        cosine = (1 + tf.cos(math.pi * tf.clip_by_value(share, 0.0, 1.0))) / 2
        return self.peak * tf.minimum((step + 1) / max(self.warmup, 1), cosine)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"peak": self.peak, "warmup": self.warmup, "steps": self.steps}


def choose_optimizer(options: argparse.Namespace, batch: int, steps: int) -> tuple[str, WarmupCosine]:
    """Return the key of the recipe, and the learning rate of each step."""
    by_batch = "lars" if batch > LARGEST_SGD_BATCH else "sgd"
    kind = by_batch if options.optimizer == "auto" else options.optimizer
    recipe = RECIPES[kind]
    peak = recipe.peak(batch) if options.learning_rate is None else options.learning_rate
    warmup = recipe.warmup if options.warmup is None else options.warmup
    return kind, WarmupCosine(peak, round(warmup * steps), options.epochs * steps)


def prepare_gradients(kind: str, decay: float) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """Return what makes a replica's gradients into those that the optimizer adds up over the replicas.

    The weights of convolutions and of the last layer decay. Biases and batch normalisation, of rank 1, do
    not, nor does LARS scale them.
    """

    def with_decay(gradients: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        share = decay / tf.distribute.get_replica_context().num_replicas_in_sync
        return [
            gradient + share * weight if len(weight.shape) > 1 else gradient
            for gradient, weight in zip(gradients, weights, strict=True)
        ]

    def with_lars(gradients: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        replicas = tf.distribute.get_replica_context()
        count = replicas.num_replicas_in_sync
        sums = replicas.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))  # whose norms count
        return [
            (lars(gradient, weight, decay) if len(weight.shape) > 1 else gradient) / count
            for gradient, weight in zip(sums, weights, strict=True)
        ]

    return {"sgd": with_decay, "lars": with_lars}[kind]


def lars(gradient: tf.Tensor, weight: Any, decay: float) -> tf.Tensor:
    """Return a layer's gradient, scaled by layer-wise adaptive rate scaling, for SGD with momentum.

    With w the layer's weights, g their gradient, b the decay and t = TRUST (You et al. 2017,
    arXiv:1708.03888): t |w| / (|g| + b |w|) (g + b w). Where w or g is zero, nothing is scaled.
    """
    long, steep = tf.norm(weight), tf.norm(gradient)
    scaled = (long > 0) & (steep > 0)
    trust = tf.where(scaled, TRUST * tf.math.divide_no_nan(long, steep + decay * long), 1.0)
    return trust * (gradient + decay * weight)


# the steps


def make_run_steps(
    strategy: tf.distribute.Strategy,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    prepare: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
    metrics: dict[str, tf.keras.metrics.Metric],
    batch: int,
) -> Callable[[Any, tf.Tensor], None]:
    """Return a function that trains so many steps; `metrics` take the losses and the right answers."""

    def step(pictures: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = model(pictures, training=True)
            losses = smoothed_loss(labels, logits)
            loss = tf.reduce_sum(losses) / batch  # the optimizer adds up the replicas' gradients
        weights = model.trainable_variables
        gradients = prepare(tape.gradient(loss, weights), weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        metrics["loss"].update_state(losses)
        metrics["accuracy"].update_state(labels, logits)

    statistics = [one for one in model.non_trainable_variables if "moving" in one.name]

    @tf.function
    def run_steps(batches: Any, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):  # a loop on the TPU's host: Python is not asked between the steps
            strategy.run(step, args=next(batches))
        # with Keras 3 each replica has statistics of its own; what is saved, and evaluated, is their mean
        found = strategy.run(lambda: [tf.convert_to_tensor(one) for one in statistics])
        for one, value in zip(statistics, found, strict=True):
            one.assign(strategy.reduce("MEAN", value, axis=None))

    return run_steps


def smoothed_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of each example, with smoothed labels."""
    classes = logits.shape[-1]
    wanted = tf.one_hot(labels, classes, 1 - SMOOTHING + SMOOTHING / classes, SMOOTHING / classes)
    return tf.nn.softmax_cross_entropy_with_logits(wanted, logits)


def make_evaluate(
    strategy: tf.distribute.Strategy, model: tf.keras.Model, split: training.Split, batch: int, size: int
) -> Callable[[], dict[str, float]]:
    """Return a function that gives the top-1 and top-5 accuracy over all of `split`, each picture once."""

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training.read_once(
            split, context, batch, lambda record: central(*parse(record), size), cache=False
        )

    def step(pictures: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        logits = model(pictures, training=False)
        counted = weights > 0  # the last batch is filled up with pictures of weight 0
        right = [tf.math.in_top_k(labels, logits, most) & counted for most in (1, 5)]
        return tf.stack([tf.reduce_sum(tf.cast(one, tf.float32)) for one in (*right, counted)])

    @tf.function
    def run_step(batch: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)

    def evaluate() -> dict[str, float]:
        sums = sum(run_step(one) for one in strategy.distribute_datasets_from_function(of_host))
        top_1, top_5, examples = sums.numpy().tolist()
        return {"val_accuracy": top_1 / examples, "val_top_5": top_5 / examples}

    return evaluate


if __name__ == "__main__":
    main()
