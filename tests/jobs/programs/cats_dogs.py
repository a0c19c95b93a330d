"""Print a report on the job cats_dogs, as JSON.

PYTHONPATH=.:jobs python -m tests.jobs.programs.cats_dogs FOLDER

FOLDER has pets/shards, a dataset of two classes, and more/shards, a dataset of three classes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cats_dogs
import numpy as np
import tensorflow as tf

from tests.jobs import runs as job_runs


def main() -> None:
    """Print the report, one JSON object, as the last line."""
    folder = Path(sys.argv[1])
    shards, other = (folder / name / "shards" for name in ("pets", "more"))
    report: dict[str, Any] = {
        "training": training(shards, folder),
        "evaluation": evaluation(shards, folder / "full"),
        "transforms": transforms(),
        "augmented": augmented(shards),
        "three classes": job_runs.refusal(lambda: run(other, folder / "other")),
    }
    print(json.dumps(report))


def run(shards: Path, out: Path, *arguments: str) -> None:
    """Run the job in this process, with batches of 8."""
    job_runs.run(cats_dogs.main, f"--data={shards}", f"--out={out}", "--batch=8", "--epochs=2", *arguments)


def training(shards: Path, folder: Path) -> dict[str, Any]:
    """Train for 2 epochs, uninterrupted and with a stop in the second; compare what was saved."""
    runs = {"full": [[]], "resumed": [["--stop-after=5"], []]}
    for name, commands in runs.items():
        for arguments in commands:
            run(shards, folder / name, *arguments)
    full, resumed = (job_runs.weights(folder / name) for name in runs)
    return {
        "seeds": [
            value.tolist()
            for name, value in full.items()
            if name.startswith("state/") and value.dtype.kind in "iu"
        ],
        "differing": job_runs.differing(full, resumed),
        "results": {
            name: json.loads((folder / name / "outputs" / "result.json").read_text()) for name in runs
        },
        "metrics": {name: scalars(folder / name / "tensorboard") for name in runs},
    }


def scalars(folder: Path) -> dict[str, float]:
    """Return the last value of each of TensorBoard's curves."""
    values = {}
    for file in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(file)):
            for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value:
                values[value.tag] = float(tf.make_ndarray(value.tensor))
    return values


def evaluation(shards: Path, out: Path) -> dict[str, Any]:
    """Count the correct predictions image by image, with the weights that the job saved."""
    split = cats_dogs.training.find_split(str(shards), "test")
    model = cats_dogs.build_model()
    model.load_weights(str(out / "outputs" / "cats_dogs.weights.h5"))
    correct, losses = [], []
    for record in tf.data.TFRecordDataset(split.files):
        image, label = cats_dogs.parse(record)
        logit = float(model(image[tf.newaxis], training=False)[0, 0])
        correct.append((logit > 0) == bool(label[0]))
        losses.append(float(np.logaddexp(0, -logit if label[0] else logit)))
    return {"correct": sum(correct), "examples": len(correct), "loss": float(np.mean(losses))}


def transforms() -> list[list[float]]:
    """Return the affine transforms of some seeds, measured on an image whose colours are its coordinates.

    Each is (a, b, c, d, x, y): a pixel at (x, y) from the middle takes its value from (a x + b y, c x + d y),
    and the middle from (x, y).
    """
    side = cats_dogs.SIDE
    down, across = np.mgrid[0:side, 0:side]
    image = tf.constant(np.stack([across, down, 0 * down], -1).astype(np.uint8))
    augment = tf.function(lambda seed: cats_dogs.augment(image, tf.constant([1.0]), seed)[0])
    inner = (slice(32, 96), slice(32, 96))  # no pixel here comes from outside the image
    middle = (side - 1) / 2
    places = np.stack([across[inner].ravel() - middle, down[inner].ravel() - middle, np.ones(64 * 64)], 1)
    fits = []
    for place in range(60):
        source = augment(tf.constant([3, place], tf.int64)).numpy()[inner].astype(float)
        fit, *_ = np.linalg.lstsq(places, source[..., :2].reshape(-1, 2), rcond=None)
        fits.append([*fit[:2, 0], *fit[:2, 1], *(fit[2] + 0.5 - middle)])  # values are cut to integers
    return fits


def augmented(shards: Path) -> dict[str, Any]:
    """Augment an image with many seeds."""
    record = next(iter(tf.data.TFRecordDataset(cats_dogs.training.find_split(str(shards), "train").files)))
    image, label = cats_dogs.parse(record)
    augment = tf.function(cats_dogs.augment)
    seeds = [tf.constant([7, place], tf.int64) for place in range(40)]
    first, second = ([augment(image, label, seed) for seed in seeds] for _ in range(2))
    plain = tf.fill(image.shape, tf.constant(200, tf.uint8))
    return {
        "same": all(np.array_equal(a, b) for (a, _), (b, _) in zip(first, second, strict=True)),
        "different": len({changed.numpy().tobytes() for changed, _ in first}),
        "labels": sorted({(float(label[0]), label.dtype.name) for _, label in first}),
        "shapes": sorted({(*changed.shape, changed.dtype.name) for changed, _ in first}),
        "range": [
            int(min(changed.numpy().min() for changed, _ in first)),
            int(max(changed.numpy().max() for changed, _ in first)),
        ],
        "range before": [int(image.numpy().min()), int(image.numpy().max())],
        "plain": sorted(
            {int(value) for seed in seeds[:5] for value in augment(plain, label, seed)[0].numpy().ravel()}
        ),
    }


if __name__ == "__main__":
    main()
