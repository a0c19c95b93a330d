"""Measure a trained model on the held-out images, apart from the job that trained it.

    python demo/evaluate_digits.py CHECKPOINT_FOLDER TEST_FOLDER [--job jobs/digits.py] [--at-least 0.95]

Takes the model from the job file, its variables from the latest checkpoint in CHECKPOINT_FOLDER, and the
images from TEST_FOLDER/<digit>/*.png. Ends with 1 below --at-least.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

JOB = Path(__file__).parent.parent / "jobs" / "digits.py"


def main() -> None:
    """Print the accuracy."""
    parser = argparse.ArgumentParser(description="Measure a trained model on the held-out digits.")
    parser.add_argument("checkpoints", type=Path, help="folder of the checkpoints")
    parser.add_argument("images", type=Path, help="folder of the test images, a folder for each digit")
    parser.add_argument("--job", type=Path, default=JOB, help="the file whose build_model() was trained")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="ACCURACY")
    options = parser.parse_args()
    paths = sorted(options.images.glob("*/*.png"))
    if not paths:
        raise SystemExit(f"There are no <digit>/*.png files in {options.images}.")
    right = count_right(restore_model(options.job, options.checkpoints), paths)
    accuracy = right / len(paths)
    print(f"test accuracy {accuracy:.3f} ({right} of {len(paths)} images)")
    if accuracy < options.at_least:
        raise SystemExit(f"That is below {options.at_least}.")


def restore_model(job: Path, checkpoints: Path) -> Any:
    """Return the job's model with the variables of the latest checkpoint, every one of them."""
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(str(checkpoints))
    if latest is None:
        raise SystemExit(f"There is no checkpoint in {checkpoints}.")
    sys.path.insert(0, str(job.resolve().parent))  # as Python does for a script: it imports what is beside it
    model = runpy.run_path(str(job), run_name="job")["build_model"]()
    status = tf.train.Checkpoint(model=model).restore(latest)
    status.assert_existing_objects_matched()
    status.expect_partial()  # the optimizer's variables stay behind
    return model


def count_right(model: Any, paths: list[Path]) -> int:
    """Return how many of the images are read as the digit that their folder is named after."""
    import numpy as np
    from PIL import Image

    images = np.stack([np.asarray(Image.open(path).convert("L")) for path in paths])
    labels = np.array([int(path.parent.name) for path in paths])
    logits = np.asarray(model(images[..., np.newaxis], training=False))
    return int((logits.argmax(axis=1) == labels).sum())


if __name__ == "__main__":
    main()
