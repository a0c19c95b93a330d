"""What the job cats_dogs does, as JSON: PYTHONPATH=.:jobs python -m tests.jobs.programs.cats_dogs FOLDER.

In FOLDER there are pets/shards, a dataset of two classes, and more/shards, one of three.
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
    """Print the facts, one JSON object, as the last line."""
    folder = Path(sys.argv[1])
    shards, other = (folder / name / "shards" for name in ("pets", "more"))
    facts: dict[str, Any] = {
        "training": training(shards, folder),
        "evaluation": evaluation(shards, folder / "whole"),
        "maps": maps(),
        "augmented": augmented(shards),
        "three classes": job_runs.refusal(lambda: run(other, folder / "other")),
    }
    print(json.dumps(facts))


def run(shards: Path, out: Path, *arguments: str) -> None:
    """Run the job in this process, with batches of 8."""
    job_runs.run(cats_dogs.main, f"--data={shards}", f"--out={out}", "--batch=8", "--epochs=2", *arguments)


def training(shards: Path, folder: Path) -> dict[str, Any]:
    """Train for 2 epochs, at once and with a stop in the second; compare what was saved."""
    runs = {"whole": [[]], "stopped": [["--stop-after=5"], []]}
    for name, each in runs.items():
        for arguments in each:
            run(shards, folder / name, *arguments)
    whole, stopped = (job_runs.weights(folder / name) for name in runs)
    return {
        "seeds": [
            value.tolist()
            for name, value in whole.items()
            if name.startswith("state/") and value.dtype.kind in "iu"
        ],
        "unlike": job_runs.differing(whole, stopped),
        "results": {
            name: json.loads((folder / name / "outputs" / "result.json").read_text()) for name in runs
        },
        "numbers": {name: scalars(folder / name / "tensorboard") for name in runs},
    }


def scalars(folder: Path) -> dict[str, float]:
    """Return the last value of each of TensorBoard's curves."""
    found = {}
    for file in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(file)):
            for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value:
                found[value.tag] = float(tf.make_ndarray(value.tensor))
    return found


def evaluation(shards: Path, out: Path) -> dict[str, Any]:
    """Count the right answers picture by picture, with the weights that the job saved."""
    split = cats_dogs.training.find_split(str(shards), "test")
    model = cats_dogs.build_model()
    model.load_weights(str(out / "outputs" / "cats_dogs.weights.h5"))
    right, losses = [], []
    for record in tf.data.TFRecordDataset(split.files):
        picture, label = cats_dogs.parse(record)
        logit = float(model(picture[tf.newaxis], training=False)[0, 0])
        right.append((logit > 0) == bool(label[0]))
        losses.append(float(np.logaddexp(0, -logit if label[0] else logit)))
    return {"right": sum(right), "examples": len(right), "loss": float(np.mean(losses))}


def maps() -> list[list[float]]:
    """Return the affine maps of some seeds, read off a picture whose colours are the coordinates.

    Each as (a, b, c, d, x, y): from the middle, (x, y) is taken from (a x + b y, c x + d y), and the middle
    itself from (x, y).
    """
    side = cats_dogs.SIDE
    down, across = np.mgrid[0:side, 0:side]
    picture = tf.constant(np.stack([across, down, 0 * down], -1).astype(np.uint8))
    augment = tf.function(lambda seed: cats_dogs.augment(picture, tf.constant([1.0]), seed)[0])
    inner = (slice(32, 96), slice(32, 96))  # nothing here is from outside the picture
    middle = (side - 1) / 2
    places = np.stack([across[inner].ravel() - middle, down[inner].ravel() - middle, np.ones(64 * 64)], 1)
    found = []
    for place in range(60):
        taken = augment(tf.constant([3, place], tf.int64)).numpy()[inner].astype(float)
        fit, *_ = np.linalg.lstsq(places, taken[..., :2].reshape(-1, 2), rcond=None)
        found.append([*fit[:2, 0], *fit[:2, 1], *(fit[2] + 0.5 - middle)])  # values are cut to whole ones
    return found


def augmented(shards: Path) -> dict[str, Any]:
    """Augment one picture with many seeds."""
    record = next(iter(tf.data.TFRecordDataset(cats_dogs.training.find_split(str(shards), "train").files)))
    picture, label = cats_dogs.parse(record)
    augment = tf.function(cats_dogs.augment)
    seeds = [tf.constant([7, place], tf.int64) for place in range(40)]
    made, again = ([augment(picture, label, seed) for seed in seeds] for _ in range(2))
    plain = tf.fill(picture.shape, tf.constant(200, tf.uint8))
    return {
        "same": all(np.array_equal(a, b) for (a, _), (b, _) in zip(made, again, strict=True)),
        "different": len({one.numpy().tobytes() for one, _ in made}),
        "labels": sorted({(float(label[0]), label.dtype.name) for _, label in made}),
        "shapes": sorted({(*one.shape, one.dtype.name) for one, _ in made}),
        "range": [
            int(min(one.numpy().min() for one, _ in made)),
            int(max(one.numpy().max() for one, _ in made)),
        ],
        "range before": [int(picture.numpy().min()), int(picture.numpy().max())],
        "plain": sorted(
            {int(one) for seed in seeds[:5] for one in augment(plain, label, seed)[0].numpy().ravel()}
        ),
    }


if __name__ == "__main__":
    main()
