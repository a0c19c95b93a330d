"""Evaluate a trained model on the held-out images, independently of the job that trained it.

    python demo/evaluate_digits.py CHECKPOINT_FOLDER TEST_FOLDER [--job jobs/digits.py] [--at-least 0.95]

The model comes from the job file, its variables from the latest checkpoint in CHECKPOINT_FOLDER, and the
images from TEST_FOLDER/<digit>/*.png. Exits with 1 if the accuracy is below --at-least.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

JOB = Path(__file__).parent.parent / "jobs" / "digits.py"


def main() -> None:
    """Print the accuracy, and compare it with --at-least."""
    parser = argparse.ArgumentParser(description="Evaluate a trained model on the held-out digits.")
    parser.add_argument("checkpoints", type=Path, help="folder of the checkpoints")
    parser.add_argument("images", type=Path, help="folder with a folder of test images for each digit")
    parser.add_argument("--job", type=Path, default=JOB, help="job file whose build_model() was trained")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="ACCURACY", help="least accuracy")
    options = parser.parse_args()
    paths = sorted(options.images.glob("*/*.png"))
    if not paths:
        raise SystemExit(f"There are no <digit>/*.png files in {options.images}.")
    correct = count_correct(restore_model(options.job, options.checkpoints), paths)
    accuracy = correct / len(paths)
    print(f"test accuracy {accuracy:.3f} ({correct} of {len(paths)} images)")
    if accuracy < options.at_least:
        raise SystemExit(f"The accuracy is below {options.at_least}.")


def restore_model(job: Path, checkpoints: Path) -> Any:
    """Return the job's model with all its variables restored from the latest checkpoint."""
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(str(checkpoints))
    if latest is None:
        raise SystemExit(f"There is no checkpoint in {checkpoints}.")
    sys.path.insert(0, str(job.resolve().parent))  # a job imports the modules beside it, as a script does
    model = runpy.run_path(str(job), run_name="job")["build_model"]()
    status = tf.train.Checkpoint(model=model).restore(latest)
    status.assert_existing_objects_matched()
    status.expect_partial()  # the optimizer's variables are not restored
    return model


def count_correct(model: Any, paths: list[Path]) -> int:
    """Return the number of images that are classified as the digit of their folder."""
    import numpy as np
    from PIL import Image

    images = np.stack([np.asarray(Image.open(path).convert("L")) for path in paths])
    labels = np.array([int(path.parent.name) for path in paths])
    logits = np.asarray(model(images[..., np.newaxis], training=False))
    return int((logits.argmax(axis=1) == labels).sum())


if __name__ == "__main__":
    main()
