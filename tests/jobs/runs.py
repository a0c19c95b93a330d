"""Runs of a job in this process, for programs that look at several of them: TensorFlow is imported once."""

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
    """Run a job's `main` with a command line; returns what it printed. An end with 0 is an end."""
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
    """Return the sentence with which `work` ends the program."""
    try:
        work()
    except SystemExit as end:
        return str(end.code)
    return ""


def at_step(step: int, out: Path, folder: Path) -> Path:
    """Return `folder`, with what a run that writes to `out` would have left had it been stopped at `step`."""
    shutil.copytree(out / "checkpoints", folder / "checkpoints")
    paths = (f'{name}: "ckpt-{step}"\n' for name in ("model_checkpoint_path", "all_model_checkpoint_paths"))
    (folder / "checkpoints" / "checkpoint").write_text("".join(paths))
    return folder


def weights(out: Path) -> dict[str, np.ndarray]:
    """Return what the last checkpoint below a run's folder holds, but for the count of saves."""
    checkpoint = tf.train.load_checkpoint(str(out / "checkpoints"))
    names = checkpoint.get_variable_to_shape_map()
    skipped = ("save_counter", "_CHECKPOINTABLE_OBJECT_GRAPH")
    return {name: checkpoint.get_tensor(name) for name in names if not name.startswith(skipped)}


def differing(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """Return the names whose values are not the same to the last bit."""
    names = sorted({*one, *other})
    return [name for name in names if name not in one or not np.array_equal(one[name], other.get(name))]
