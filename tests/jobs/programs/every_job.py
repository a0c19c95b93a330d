# /// script
# dependencies = ["tensorflow"]
# [tool.tpuctl]
# framework = "tensorflow"
# ///
"""Runs every job for a few steps in one process, each with its own output folders; prints JSON.

The datasets in the bucket are those that `test_on_the_simulator.py` uploads.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import traceback
from typing import Any

gc.set_threshold(50_000, 20, 100)  # TensorFlow spends a tenth of its time on collections
sys.modules.update(dict.fromkeys(("jax", "sklearn")))  # it would import them, for a third of its start

import bert  # noqa: E402
import cats_dogs  # noqa: E402
import fashion_mnist  # noqa: E402
import mnist  # noqa: E402
import mnist_custom_loop  # noqa: E402
import resnet  # noqa: E402
import reuters  # noqa: E402
import tpu_check  # noqa: E402

resnet.DEPTHS[10] = (1, 1, 1, 1)  # the smallest network with every kind of block
STEPS = ("--epochs", "1", "--batch", "8", "--steps-per-call", "1")
RUNS: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "tpu_check": (tpu_check.main, "", ("--seconds", "0.05")),
    "mnist": (mnist.main, "mnist", (*STEPS, "--filters", "4")),
    "mnist_custom_loop": (mnist_custom_loop.main, "mnist", (*STEPS, "--filters", "4")),
    "fashion_mnist": (fashion_mnist.main, "mnist", STEPS),
    "reuters": (reuters.main, "words", STEPS),
    "cats_dogs": (cats_dogs.main, "shades", STEPS),
    "bert_fit": (bert.main, "pieces", (*STEPS, "--hidden", "16", "--layers", "1")),
    "bert_custom": (bert.main, "pieces", (*STEPS, "--hidden", "16", "--layers", "1", "--loop", "custom")),
    "resnet": (resnet.main, "shades", (*STEPS, "--depth", "10", "--size", "32")),
}
"""Name of a run -> the job, its dataset, its arguments."""


def run(name: str) -> dict[str, Any]:
    """Run a job; returns its exit code and what it printed."""
    main, dataset, arguments = RUNS[name]
    folders = {"CHECKPOINT": "checkpoints", "TENSORBOARD": "tensorboard", "MODEL": "outputs"}
    for variable, folder in folders.items():
        os.environ[f"TPUCTL_{variable}_DIR"] = f"{BASE}/{name}/{folder}"
    os.environ["TPUCTL_DATA_DIR"] = f"gs://{BUCKET}/datasets/{dataset}/1.0.0"
    sys.argv = [name, *arguments]
    printed, code = io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as end:
            code = end.code
        except Exception:
            code = traceback.format_exc()
    return {"code": code or 0, "printed": printed.getvalue()}


if __name__ == "__main__":
    BASE = os.environ["TPUCTL_MODEL_DIR"]
    BUCKET = BASE.removeprefix("gs://").partition("/")[0]
    print(json.dumps({name: run(name) for name in RUNS}))
