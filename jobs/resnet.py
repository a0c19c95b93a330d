# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "imagenet"
# framework = "tensorflow"
# ///
"""Train ResNet-50 on ImageNet, or on any images in class folders, with a custom training loop.

    tpuctl data upload imagenet FOLDER --for v3-8    FOLDER/train/CLASS/*.jpg, FOLDER/validation/CLASS/*.jpg
    tpuctl submit jobs/resnet.py                     or: python jobs/resnet.py --data SHARDS --out RESULTS

The network is ResNet-50 v1.5 (He et al. 2015, arXiv:1512.03385; the 3x3 convolution of a block has the
stride). The recipe is from He et al. 2018 (arXiv:1812.01187): a learning rate that grows with the batch size,
linear warm-up, cosine decay, label smoothing, no weight decay of biases and batch normalisation. Batch sizes
above 8,192 use LARS. Google's figures for a v3-8 are over 4,000 images/s and 93 % top-5 accuracy. This file
has not been run on a TPU.

Environment variables (folders or gs:// addresses):

    TPUCTL_DATA_DIR         TFRecord shards of the splits train and validation, or test: `image` (JPEG or PNG
                            of any size), `label` (int64); label.labels.txt
    TPUCTL_CHECKPOINT_DIR   checkpoints; training resumes from the last one
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
"""Layers of the network -> residual blocks of its four stages; from 50 on a block has 3 convolutions."""
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Mean and standard deviation of red, green and blue in ImageNet, 0 to 255."""
SMOOTHING = 0.1
"""Label smoothing: share of the label spread evenly over all classes (arXiv:1512.00567)."""
MOMENTUM = 0.9
TRUST = 0.001
"""The trust coefficient of LARS: the step of a layer relative to its norm, at a learning rate of 1."""
LARGEST_SGD_BATCH = 8192
"""Up to this batch size SGD keeps the accuracy of small batches (Goyal et al. 2017, arXiv:1706.02677)."""


class Recipe(NamedTuple):
    """An optimizer's peak learning rate: `rate` at batch size `batch`, growing with its `power`."""

    rate: float
    batch: int
    power: float
    warmup: int
    """Epochs of warm-up."""

    def peak(self, batch: int) -> float:
        """Return the peak learning rate for a batch size."""
        return float(self.rate * (batch / self.batch) ** self.power)


RECIPES = {
    "sgd": Recipe(0.1, 256, 1.0, 5),  # Goyal et al. 2017
    "lars": Recipe(31.2, 32768, 0.5, 25),  # MLPerf 0.6 on TPU v3 (Kumar et al. 2019, arXiv:1909.09756)
}


def build_model(classes: int, depth: int = 50, size: int = 224) -> tf.keras.Model:
    """Return the untrained network: images (batch, size, size, 3) uint8 to logits (batch, classes)."""
    layers = tf.keras.layers
    expansion = 4 if depth >= 50 else 1

    def convolve(x: tf.Tensor, filters: int, kernel: int, stride: int = 1) -> tf.Tensor:
        initializer = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
        return layers.Conv2D(
            filters, kernel, stride, padding="same", use_bias=False, kernel_initializer=initializer
        )(x)

    def normalise(x: tf.Tensor, gamma: str = "ones") -> tf.Tensor:
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, gamma_initializer=gamma)(x)

    def relu(x: tf.Tensor) -> tf.Tensor:
        return layers.ReLU()(x)

    def block(x: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
        shortcut = x
        if stride > 1 or x.shape[-1] != expansion * filters:
            shortcut = normalise(convolve(x, expansion * filters, 1, stride))
        if expansion == 4:
            x = relu(normalise(convolve(x, filters, 1)))
        x = relu(normalise(convolve(x, filters, 3, stride)))
        x = convolve(x, expansion * filters, 1 if expansion == 4 else 3)
        x = normalise(x, gamma="zeros")  # each block starts as the identity
        return relu(layers.Add()([x, shortcut]))

    inputs = tf.keras.Input((size, size, 3), dtype="uint8")  # a quarter of the bytes of float32 to the TPU
    x = layers.Normalization(mean=MEAN, variance=[value**2 for value in DEVIATION], dtype="float32")(inputs)
    x = relu(normalise(convolve(x, 64, 7, 2)))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, blocks in enumerate(DEPTHS[depth]):
        for number in range(blocks):
            x = block(x, 64 * 2**stage, 2 if stage and not number else 1)
    x = layers.GlobalAveragePooling2D()(x)
    initializer = tf.keras.initializers.RandomNormal(stddev=0.01)
    return tf.keras.Model(inputs, layers.Dense(classes, kernel_initializer=initializer, dtype="float32")(x))


def main() -> None:
    """Train, and report loss, accuracy and validation accuracy after each epoch."""
    options = parse_arguments()
    strategy = training.choose_strategy(options.seed, options.precision)
    split = training.find_split(options.data, "train")
    validation = training.find_split(options.data, "validation", "test")
    classes = len(training.read_text(options.data, "label.labels.txt").strip("\n").split("\n"))
    batch = training.global_batch(options.batch, strategy)
    steps = split.steps(batch)
    name, schedule = choose_optimizer(options, batch, steps)
    training.say(
        f"{split.examples:,} images of {classes} classes, {steps:,} steps of {batch} an epoch, "
        f"{name}, peak learning rate {schedule.peak:.4g}"
    )
    build = functools.partial(build_model, classes, options.depth, options.size)
    with strategy.scope():
        model = build()
        optimizer = tf.keras.optimizers.SGD(schedule, MOMENTUM, nesterov=name == "sgd")
        optimizer.build(model.trainable_variables)
        metrics = {
            "loss": tf.keras.metrics.Mean(),
            "accuracy": tf.keras.metrics.SparseCategoricalAccuracy(),
        }
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model, **metrics)
    progress.add_estimate(build, (options.size, options.size, 3), tf.uint8)
    prepare = prepare_gradients(name, options.weight_decay)
    run_steps = make_run_steps(strategy, model, optimizer, prepare, metrics, batch)
    evaluate = make_evaluate(strategy, model, validation, batch, options.size)
    batches = progress.time_input(read_batches(strategy, split, batch, options, progress.step))

    for epoch in progress.epochs(options.epochs):
        for count in progress.calls():
            run_steps(batches, tf.constant(count))
        results = {name: float(metric.result()) for name, metric in metrics.items()}
        progress.report(epoch, **results, **evaluate())
        for metric in metrics.values():
            metric.reset_state()
    progress.save_weights(model, "resnet")
    progress.finish()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = training.parser(__doc__, epochs=90, batch=1024, steps_per_call=20)
    parser.add_argument("--depth", type=int, choices=DEPTHS, default=50, help="layers of the network")
    parser.add_argument("--size", type=int, default=224, help="width and height of the network's input")
    parser.add_argument("--optimizer", choices=("auto", *RECIPES), default="auto", help="auto: by batch size")
    parser.add_argument("--learning-rate", type=float, help="peak (default: by batch size)")
    parser.add_argument("--weight-decay", type=float, default=1e-4, help="L2 weight decay")
    parser.add_argument("--warmup", type=float, metavar="EPOCHS", help="default: by optimizer")
    parser.add_argument("--shuffle", type=int, default=16384, help="images in the shuffle buffer")
    return parser.parse_args()


# the input pipeline


def read_batches(
    strategy: tf.distribute.Strategy,
    split: training.Split,
    batch: int,
    options: argparse.Namespace,
    step: int,
) -> tf.distribute.DistributedDataset:
    """Return the batches after `step` steps: images (batch, size, size, 3) uint8, labels (batch,) int32."""

    def host_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training.read(
            split, context, batch, parse, seed=options.seed, step=step,
            augment=functools.partial(augment, size=options.size), cache=False, shuffle=options.shuffle,
        )  # fmt: skip

    return strategy.distribute_datasets_from_function(host_batches)


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the encoded image (JPEG or PNG bytes) and the label."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return example["image"], tf.cast(example["label"], tf.int32)


def augment(
    encoded: tf.Tensor, label: tf.Tensor, seed: tf.Tensor, size: int = 224
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a random crop of the image, (size, size, 3) uint8, flipped at random, and the label.

    The crop has 8 to 100 % of the area and an aspect ratio of 3:4 to 4:3 (Szegedy et al. 2014,
    arXiv:1409.4842).
    """
    seeds = tf.random.split(seed, 2)
    image = decode_window(encoded, functools.partial(random_window, seed=seeds[0]))
    flip = tf.random.stateless_uniform([], seeds[1]) < 0.5
    image = tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)
    return resize(image, size), label


def central_crop(encoded: tf.Tensor, label: tf.Tensor, size: int = 224) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the central crop of the image, (size, size, 3) uint8, and the label; nothing is random."""
    return resize(decode_window(encoded, functools.partial(central_window, size=size)), size), label


def decode_window(encoded: tf.Tensor, choose: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Return the pixels of the window (top, left, height, width) that `choose` returns for the image's shape.

    Of a JPEG only the window is decoded. With `fancy_upscaling` off, the colours of neighbouring pixels are
    not interpolated, so the window is bit for bit a crop of the full decoded image.
    """

    def jpeg() -> tf.Tensor:
        window = choose(tf.io.extract_jpeg_shape(encoded))
        return tf.io.decode_and_crop_jpeg(
            encoded, window, channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False
        )

    def png() -> tf.Tensor:
        image = tf.io.decode_png(encoded, channels=3)
        top, left, height, width = tf.unstack(choose(tf.shape(image)))
        return image[top : top + height, left : left + width]

    return tf.cond(tf.io.is_jpeg(encoded), jpeg, png)


def random_window(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Return a window (top, left, height, width) that depends only on the seed."""
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape, tf.zeros([1, 0, 4]), seed, min_object_covered=0.0, aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0), max_attempts=10, use_image_if_no_bounding_boxes=True,
    )  # fmt: skip
    return tf.concat([begin[:2], extent[:2]], 0)


def central_window(shape: tf.Tensor, size: int) -> tf.Tensor:
    """Return the central square, 224 pixels of a shorter side that is scaled to 256 pixels."""
    side = tf.cast(tf.cast(tf.minimum(shape[0], shape[1]), tf.float32) * (size / (size + 32)), tf.int32)
    side = tf.maximum(side, 1)
    return tf.stack([(shape[0] - side + 1) // 2, (shape[1] - side + 1) // 2, side, side])


def resize(image: tf.Tensor, size: int) -> tf.Tensor:
    """Return the image resized to (size, size, 3) uint8."""
    return tf.ensure_shape(tf.cast(tf.round(tf.image.resize(image, [size, size])), tf.uint8), [size, size, 3])


# the optimizer


class WarmupCosine(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly to `peak` in `warmup` steps, then falls to 0 as half a cosine."""

    def __init__(self, peak: float, warmup: int, steps: int) -> None:
        self.peak, self.warmup, self.steps = peak, warmup, steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the learning rate of a step; the first step is 0."""
        step = tf.cast(step, tf.float32)
        decayed = (step - self.warmup) / max(self.steps - self.warmup, 1)
        cosine = (1 + tf.cos(math.pi * tf.clip_by_value(decayed, 0.0, 1.0))) / 2
        return self.peak * tf.minimum((step + 1) / max(self.warmup, 1), cosine)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"peak": self.peak, "warmup": self.warmup, "steps": self.steps}


def choose_optimizer(options: argparse.Namespace, batch: int, steps: int) -> tuple[str, WarmupCosine]:
    """Return the name of the recipe, and its learning rate schedule."""
    by_batch = "lars" if batch > LARGEST_SGD_BATCH else "sgd"
    name = by_batch if options.optimizer == "auto" else options.optimizer
    recipe = RECIPES[name]
    peak = recipe.peak(batch) if options.learning_rate is None else options.learning_rate
    warmup = recipe.warmup if options.warmup is None else options.warmup
    return name, WarmupCosine(peak, round(warmup * steps), options.epochs * steps)


GradientTransform = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""Gradients of a replica and weights -> the gradients that the optimizer sums over the replicas."""


def prepare_gradients(recipe: str, decay: float) -> GradientTransform:
    """Return the function that adds weight decay to the gradients of a replica and, for LARS, scales them.

    Only weights of rank 2 and more (convolutions, the last layer) decay and are scaled; biases and batch
    normalisation have rank 1.
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
        sums = replicas.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))  # LARS takes their norms
        return [
            (lars(gradient, weight, decay) if len(weight.shape) > 1 else gradient) / count
            for gradient, weight in zip(sums, weights, strict=True)
        ]

    return {"sgd": with_decay, "lars": with_lars}[recipe]


def lars(gradient: tf.Tensor, weight: Any, decay: float) -> tf.Tensor:
    """Return the gradient of a layer, scaled by layer-wise adaptive rate scaling, for SGD with momentum.

    With w the layer's weights, g their gradient, b the decay and t = TRUST (You et al. 2017,
    arXiv:1708.03888): t |w| / (|g| + b |w|) (g + b w). If w or g is zero, nothing is scaled.
    """
    weight_norm, gradient_norm = tf.norm(weight), tf.norm(gradient)
    scaled = (weight_norm > 0) & (gradient_norm > 0)
    ratio = tf.math.divide_no_nan(weight_norm, gradient_norm + decay * weight_norm)
    trust = tf.where(scaled, TRUST * ratio, 1.0)
    return trust * (gradient + decay * weight)


# training and evaluation steps


def make_run_steps(
    strategy: tf.distribute.Strategy,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    prepare: GradientTransform,
    metrics: dict[str, tf.keras.metrics.Metric],
    batch: int,
) -> Callable[[training.TimedBatches, tf.Tensor], None]:
    """Return a function that trains a number of steps and updates `metrics`, loss and accuracy."""

    def step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = smoothed_loss(labels, logits)
            loss = tf.reduce_sum(losses) / batch  # the optimizer sums the gradients of the replicas
        weights = model.trainable_variables
        gradients = prepare(tape.gradient(loss, weights), weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        metrics["loss"].update_state(losses)
        metrics["accuracy"].update_state(labels, logits)

    statistics = [variable for variable in model.non_trainable_variables if "moving" in variable.name]

    @tf.function
    def run_steps(batches: training.TimedBatches, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):  # this loop runs on the TPU's host, without Python
            strategy.run(step, args=next(batches))
        # with Keras 3 each replica has its own statistics; their mean is saved and evaluated
        values = strategy.run(lambda: [tf.convert_to_tensor(variable) for variable in statistics])
        for variable, value in zip(statistics, values, strict=True):
            variable.assign(strategy.reduce("MEAN", value, axis=None))

    return run_steps


def smoothed_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of each example with smoothed labels."""
    classes = logits.shape[-1]
    smoothed = tf.one_hot(labels, classes, 1 - SMOOTHING + SMOOTHING / classes, SMOOTHING / classes)
    return tf.nn.softmax_cross_entropy_with_logits(smoothed, logits)


def make_evaluate(
    strategy: tf.distribute.Strategy, model: tf.keras.Model, split: training.Split, batch: int, size: int
) -> Callable[[], dict[str, float]]:
    """Return a function that returns the top-1 and top-5 accuracy on `split`; each image counts once."""

    def host_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training.read_once(
            split, context, batch, lambda record: central_crop(*parse(record), size), cache=False
        )

    def step(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        logits = model(images, training=False)
        counted = weights > 0  # the last batch is padded with images of weight 0
        correct = [tf.math.in_top_k(labels, logits, k) & counted for k in (1, 5)]
        return tf.stack([tf.reduce_sum(tf.cast(mask, tf.float32)) for mask in (*correct, counted)])

    @tf.function
    def run_step(batch: tuple[Any, Any, Any]) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)

    def evaluate() -> dict[str, float]:
        sums = sum(run_step(batch) for batch in strategy.distribute_datasets_from_function(host_batches))
        top_1, top_5, examples = sums.numpy().tolist()
        return {"val_accuracy": top_1 / examples, "val_top_5": top_5 / examples}

    return evaluate


if __name__ == "__main__":
    main()
