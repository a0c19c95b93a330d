"""Small images in class folders, and the shards that `tpuctl data upload` makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.jobs import datasets


def write_image(path: Path, shade: int, size: tuple[int, int], seed: int) -> Path:
    """Write a noisy image whose strongest channel is `shade` (0 red, 1 green, 2 blue)."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 90, (size[1], size[0], 3))
    pixels[..., shade] += rng.integers(60, 160)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path, quality=90)
    return path


def shards(
    folder: Path,
    name: str,
    classes: Sequence[str],
    counts: Mapping[str, int],
    size: tuple[int, int] = (40, 32),
) -> Path:
    """Convert `counts` images of each split, JPEG and PNG in turn; return the folder of the shards.

    One image of five has the wrong label, so that no network classifies all of them correctly.
    """
    for split, count in counts.items():
        for number in range(count):
            kind = ("jpg", "png")[number // 2 % 2]
            shade = number % len(classes)
            label = (shade + (number % 5 == 4)) % len(classes)
            path = folder / "images" / split / classes[label] / f"{number:03}.{kind}"
            write_image(path, shade, size, seed=number + len(split))
    return datasets.shards(folder / "images", folder / "shards", name, shards=2)
