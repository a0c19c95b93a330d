"""Runs programs of tutorials as they are, block by block as a notebook does; prints what each did as JSON.

Arguments: their names; what runs on the same TPU shares this process, and the time to load TensorFlow.

The libraries under them are changed instead (see tutorials/README.md): data of the same shapes, narrower
layers, and fewer steps where TUTORIAL_* say so.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parent / "tutorials"
sys.path.insert(0, str(TUTORIALS / "stand_ins"))
gc.set_threshold(50_000, 20, 100)  # TensorFlow spends a tenth of its time on collections
sys.modules.update(dict.fromkeys(("jax", "sklearn")))  # it would import them, for a third of its start

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402  the stand-in
from tf_keras.src.datasets import fashion_mnist, reuters  # noqa: E402

MAGIC = re.compile(r"^%(\w+) *(.*)$", re.MULTILINE)
FITS: list[dict[str, Any]] = []


def limit(name: str) -> int:
    """Return what TUTORIAL_<name> says; without it there is no limit."""
    return int(os.environ.get(f"TUTORIAL_{name}", 1_000_000))


def write_downloads(folder: Path) -> None:
    """Have Keras find its datasets downloaded, with few examples in the shapes of the real ones."""
    rng = np.random.default_rng(3)
    stories = np.empty(limit("REUTERS_EXAMPLES"), dtype=object)
    topics = rng.integers(0, 46, len(stories))
    for index, topic in enumerate(topics):
        stories[index] = [*rng.integers(10, 400, rng.integers(20, 350)), *([400 + topic] * 8)]
    np.savez(folder / "reuters.npz", x=stories, y=topics)
    reuters.get_file = lambda *args, **options: str(folder / "reuters.npz")

    def fashion() -> Any:
        return tuple(tfds.pictures(limit(f"FASHION_{split}"), seed=4) for split in ("TRAIN", "TEST"))

    fashion_mnist.load_data = tf.keras.datasets.fashion_mnist.load_data = fashion


def narrow(layer: Any, factor: int) -> Any:
    """Return a layer whose width is divided, if it is a large one."""

    def narrower(width: int, *args: Any, **options: Any) -> Any:
        return layer(width // factor if width > 64 else width, *args, **options)

    return narrower


def limit_fit(fit: Any) -> Any:
    """Return `fit` with fewer epochs and steps, noting what it returned."""

    def limited(self: Any, *args: Any, **options: Any) -> Any:
        for name in ("epochs", "steps_per_epoch", "validation_steps"):
            if name in options:
                options[name] = min(options[name], limit(f"FIT_{name.upper()}"))
        history = fit(self, *args, **options)
        FITS.append({name: [float(value) for value in values] for name, values in history.history.items()})
        return history

    return limited


def limit_range(tensor_range: Any) -> Any:
    """Return tf.range with fewer numbers, for loops that it counts."""

    def limited(count: Any, *others: Any, **options: Any) -> Any:
        return tensor_range(count if others else tf.minimum(count, limit("RANGE")), *others, **options)

    return limited


def change_libraries(tutorials: list[str]) -> None:
    tf.distribute.resolver = tf.distribute.cluster_resolver
    tf.keras.Model.fit = limit_fit(tf.keras.Model.fit)
    tf.range = limit_range(tf.range)
    write_downloads(Path(os.environ["TUTORIAL_FOLDER"]))
    if tutorials == ["tpu_guide"]:
        tf.keras.layers.Conv2D = narrow(tf.keras.layers.Conv2D, 128)
        tf.keras.layers.Dense = narrow(tf.keras.layers.Dense, 8)


def run_blocks(file: Path) -> dict[str, Any]:
    """Execute the blocks of a file in one namespace, each with the line numbers that it has in the file."""
    notebook = type("Notebook", (), {"run_line_magic": staticmethod(lambda name, line: None)})
    names: dict[str, Any] = {
        "__name__": "__main__",
        "get_ipython": notebook,
        "range": lambda *bounds: builtins.range(*bounds[:-1], min(bounds[-1], limit("RANGE"))),
    }
    above = 0
    for block in file.read_text().split("# %%\n"):
        source = "\n" * above + MAGIC.sub(r"get_ipython().run_line_magic('\1', '\2')", block)
        exec(compile(source, str(file), "exec"), names)
        above += block.count("\n") + 1
    return names


def run(tutorial: str) -> dict[str, Any]:
    """Return what a program printed, fitted and made, or the error that ended it."""
    FITS.clear()
    tf.keras.utils.set_random_seed(1)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            names = run_blocks(TUTORIALS / f"{tutorial}.py")
    except Exception:
        return {"error": traceback.format_exc()}
    return {
        "error": "",
        "printed": printed.getvalue().splitlines(),
        "fits": list(FITS),
        "replicas": names["strategy"].num_replicas_in_sync,
        "weights": int(names["model"].count_params()),
    }


def main() -> None:
    tutorials = sys.argv[1:]
    change_libraries(tutorials)
    print(json.dumps({tutorial: run(tutorial) for tutorial in tutorials}))


if __name__ == "__main__":
    main()
