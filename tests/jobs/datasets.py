"""Small datasets for the jobs, made by the code of `tpuctl data`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.data.source_trees import produce
from tpuctl.data.plan import plan


def shards(source: Path, folder: Path, name: str, **options: Any) -> Path:
    """Write the dataset of a source to `folder`, as an upload would."""
    folder.mkdir(parents=True)
    for file, content in produce(plan(source, **{"name": name, "shards": 4, **options})).items():
        (folder / file).write_bytes(content)
    return folder


def write_mnist(file: Path, *, train: int, test: int) -> Path:
    """Write images whose class is easy to learn, as the arrays of MNIST."""
    arrays = {}
    for split, count in (("train", train), ("test", test)):
        labels = np.arange(count) % 10
        images = np.random.default_rng(count).integers(0, 60, (count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 4] += 150
        arrays |= {f"x_{split}": images, f"y_{split}": labels.astype(np.uint8)}
    np.savez(file, **arrays)
    return file
