"""Print a report on the ResNet job, as JSON: PYTHONPATH=.:jobs python -m tests.jobs.programs.resnet FOLDER.

FOLDER has shards/, a dataset of images, photograph.jpg and drawing.png.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import resnet
import tensorflow as tf

from tests.jobs import runs as job_runs

SMALL = ("--depth=10", "--size=32", "--batch=8", "--steps-per-call=2")
resnet.DEPTHS[10] = (1, 1, 1, 1)  # the smallest network with every kind of block


def main() -> None:
    """Print the report, one JSON object, as the last line."""
    folder = Path(sys.argv[1])
    shards = folder / "shards"
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
    )
    report: dict[str, Any] = {
        "training": training(shards, folder),
        "evaluation": evaluation(shards, folder / "full"),
        "crops": {name: crops((folder / name).read_bytes()) for name in ("photograph.jpg", "drawing.png")},
        "augmented": augmented((folder / "photograph.jpg").read_bytes()),
        "windows": windows(),
        "lars": lars(),
        "with decay": prepared("sgd", tf.distribute.get_strategy()),
        "on two replicas": prepared("lars", tf.distribute.MirroredStrategy(["CPU:1", "CPU:2"])),
        "rates": rates(),
        "loss": loss(),
        "networks": {depth: network(depth) for depth in (18, 50)},
    }
    print(json.dumps(report))


def training(shards: Path, folder: Path) -> dict[str, Any]:
    """Train for 2 epochs of 2 steps, uninterrupted and with a stop in the second; and for one with LARS."""
    runs = {
        "full": [["--epochs=2"]],
        "resumed": [["--epochs=2", "--stop-after=3"], ["--epochs=2"]],
        "lars": [["--epochs=1", "--optimizer=lars"]],
    }
    for name, commands in runs.items():
        for arguments in commands:
            job_runs.run(resnet.main, f"--data={shards}", f"--out={folder / name}", *SMALL, *arguments)
    full, resumed, with_lars = (job_runs.weights(folder / name) for name in runs)
    return {
        "statistics": sum(name.startswith("state/") for name in full),
        "differing": {
            "resumed": job_runs.differing(full, resumed),
            "lars": job_runs.differing(full, with_lars),
        },
        "variables": len(full),
        "finite": all(np.isfinite(value).all() for value in with_lars.values()),
        "results": {
            name: json.loads((folder / name / "outputs" / "result.json").read_text()) for name in runs
        },
    }


def evaluation(shards: Path, out: Path) -> dict[str, Any]:
    """Count the correct predictions image by image, with the weights that the job saved."""
    split = resnet.training.find_split(str(shards), "validation")
    model = resnet.build_model(3, 10, 32)
    model.load_weights(str(out / "outputs" / "resnet.weights.h5"))
    correct = []
    for record in tf.data.TFRecordDataset(split.files):
        image, label = resnet.central_crop(*resnet.parse(record), 32)
        correct.append(int(tf.argmax(model(image[tf.newaxis], training=False)[0])) == int(label))
    return {"correct": sum(correct), "examples": len(correct), "label": label.dtype.name}


def crops(encoded: bytes) -> dict[str, Any]:
    """Compare windows that were cropped while decoding with those of the full image."""
    options: dict[str, Any] = {"channels": 3, "dct_method": "INTEGER_FAST", "fancy_upscaling": False}
    if encoded.startswith(b"\x89PNG"):
        full = fancy = tf.io.decode_png(encoded, channels=3).numpy().astype(int)
    else:
        full = tf.io.decode_jpeg(encoded, **options).numpy().astype(int)
        fancy = tf.io.decode_jpeg(encoded, channels=3).numpy().astype(int)
    rng, largest, means = np.random.default_rng(1), 0, []
    decode = tf.function(lambda window: resnet.decode_window(encoded, lambda shape: window))
    for _ in range(40):
        height, width = (int(rng.integers(1, side + 1)) for side in full.shape[:2])
        top, left = (
            int(rng.integers(0, side - length + 1))
            for side, length in zip(full.shape, (height, width), strict=False)
        )
        crop = decode(tf.constant([top, left, height, width])).numpy().astype(int)
        same = (slice(top, top + height), slice(left, left + width))
        assert crop.shape == (height, width, 3)
        largest = max(largest, int(np.abs(crop - full[same]).max()))
        means.append(float(np.abs(crop - fancy[same]).mean()))
    return {"largest_difference": largest, "mean, to the default": float(np.mean(means)), "shape": full.shape}


def augmented(encoded: bytes) -> dict[str, Any]:
    """Augment an image with many seeds."""
    augment = tf.function(functools.partial(resnet.augment, size=48))
    label = tf.constant(2)
    seeds = [tf.constant([7, place], tf.int64) for place in range(100)]
    first, second = (_numpy([augment(encoded, label, seed) for seed in seeds]) for _ in range(2))
    slopes = [np.sign(image[:, 24:].mean() - image[:, :24].mean()) for image, _ in first]
    return {
        "same": all(np.array_equal(a, b) for (a, _), (b, _) in zip(first, second, strict=True)),
        "different": len({image.tobytes() for image, _ in first}),
        "labels": sorted({int(label) for _, label in first}),
        "shapes": sorted({(*image.shape, image.dtype.name) for image, _ in first}),
        "flipped": int(sum(slope < 0 for slope in slopes)),
    }


def _numpy(pairs: list[Any]) -> list[Any]:
    return [(image.numpy(), label.numpy()) for image, label in pairs]


def windows() -> dict[str, Any]:
    """Return windows of a 375x500 image, (top, left, height, width)."""
    shape = tf.constant([375, 500, 3])
    random = tf.function(lambda seed: resnet.random_window(shape, seed))
    seeds = [tf.constant([1, place], tf.int64) for place in range(200)]
    return {
        "random": [random(seed).numpy().tolist() for seed in seeds],
        "central": resnet.central_window(shape, 224).numpy().tolist(),
        "central of one pixel": resnet.central_window(tf.constant([1, 1, 3]), 224).numpy().tolist(),
    }


GRADIENT, WEIGHT = [[0.5, -1.0], [2.0, 0.25]], [[3.0, 0.0], [-4.0, 1.0]]
BIAS = [0.5, -0.5]


def lars() -> dict[str, Any]:
    """Scale a gradient."""
    zeros = tf.zeros([2, 2])
    return {
        "scaled": resnet.lars(tf.constant(GRADIENT), tf.constant(WEIGHT), 0.01).numpy().tolist(),
        "weights of zeros": resnet.lars(tf.constant(GRADIENT), zeros, 0.01).numpy().tolist(),
        "gradient of zeros": resnet.lars(zeros, tf.constant(WEIGHT), 0.01).numpy().tolist(),
    }


def prepared(recipe: str, strategy: tf.distribute.Strategy) -> list[Any]:
    """Return the gradients summed over the replicas, where replica 0 has GRADIENT, replica 1 twice that."""
    prepare = resnet.prepare_gradients(recipe, 0.01)

    def of_replica() -> Any:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        factor = tf.cast(number, tf.float32) + 1.0
        gradients = [tf.constant(values) * factor for values in (GRADIENT, BIAS)]
        return prepare(gradients, [tf.constant(WEIGHT), tf.constant(BIAS)])

    gradients = tf.function(lambda: strategy.run(of_replica))()
    return [strategy.reduce("SUM", gradient, axis=None).numpy().tolist() for gradient in gradients]


def rates() -> dict[str, Any]:
    """Return the optimizers chosen for some batch sizes, and the learning rates of some steps."""
    options = argparse.Namespace(optimizer="auto", learning_rate=None, warmup=None, epochs=90)
    chosen = {
        batch: resnet.choose_optimizer(options, batch, 100) for batch in (256, 1024, 8192, 16384, 32768)
    }
    schedule = resnet.WarmupCosine(2.0, 10, 110)
    return {
        "chosen": {
            batch: [recipe, rate.peak, rate.warmup, rate.steps] for batch, (recipe, rate) in chosen.items()
        },
        "steps": {step: float(schedule(tf.constant(step))) for step in (0, 4, 9, 10, 35, 60, 109, 110, 200)},
        "without warm-up": float(resnet.WarmupCosine(2.0, 0, 100)(tf.constant(0))),
    }


def loss() -> list[float]:
    """Return the losses of two examples."""
    logits = tf.constant([[2.0, 0.0, -1.0, 0.5], [0.0, 0.0, 3.0, 0.0]])
    return resnet.smoothed_loss(tf.constant([0, 1]), logits).numpy().tolist()


def network(depth: int) -> dict[str, Any]:
    """Return what identifies a published network."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = resnet.build_model(1000, depth)
    tf.keras.mixed_precision.set_global_policy("float32")
    layers = tf.keras.layers
    gammas = [layer.gamma for layer in model.layers if isinstance(layer, layers.BatchNormalization)]
    convolutions = [layer for layer in model.layers if isinstance(layer, layers.Conv2D)]
    strided = [layer for layer in convolutions if layer.strides[0] == 2]
    return {
        "weights": sum(int(np.prod(variable.shape)) for variable in model.trainable_variables),
        "zero gammas": sum(not np.asarray(gamma).any() for gamma in gammas),
        "strided kernels": sorted(layer.kernel_size[0] for layer in strided),
        "inputs": tf.as_dtype(model.inputs[0].dtype).name,
        "logits": tf.as_dtype(model.outputs[0].dtype).name,
        "inside": tf.as_dtype(model.layers[-2].compute_dtype).name,
    }


if __name__ == "__main__":
    main()
