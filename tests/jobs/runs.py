"""Runs of a job in this process, so that several of them import TensorFlow once."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def run(main: Callable[[], Any], *arguments: str | Path) -> str:
    """Run a job's `main` with a command line; returns what it printed. Other exit codes than 0 are raised."""
    sys.argv = ["job", *map(str, arguments)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
    return printed.getvalue()


def refusal(work: Callable[[], Any]) -> str:
    """Return the message with which `work` exits the program."""
    try:
        work()
    except SystemExit as end:
        return str(end.code)
    return ""


def at_step(step: int, out: Path, folder: Path) -> Path:
    """Return `folder`, filled as if the run that wrote to `out` had been stopped at `step`."""
    shutil.copytree(out / "checkpoints", folder / "checkpoints")
    paths = (f'{name}: "ckpt-{step}"\n' for name in ("model_checkpoint_path", "all_model_checkpoint_paths"))
    (folder / "checkpoints" / "checkpoint").write_text("".join(paths))
    return folder


def weights(out: Path) -> dict[str, np.ndarray]:
    """Return the values in the last checkpoint below a run's folder, without the counter of saves."""
    checkpoint = tf.train.load_checkpoint(str(out / "checkpoints"))
    names = checkpoint.get_variable_to_shape_map()
    skipped = ("save_counter", "_CHECKPOINTABLE_OBJECT_GRAPH")
    return {name: checkpoint.get_tensor(name) for name in names if not name.startswith(skipped)}


def differing(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> list[str]:
    """Return the names whose values are not the same to the last bit."""
    names = sorted({*first, *second})
    return [name for name in names if name not in first or not np.array_equal(first[name], second.get(name))]
