"""The images of benchmarks/input_pipeline: photographs, in shards of `tpuctl data`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from tpuctl.data.plan import plan

SIZE = (500, 375)
"""Width and height of most images in ImageNet."""
SMALLEST, LARGEST = 60_000, 160_000
"""Bytes of a file; ImageNet's average is 110,000."""
CLASSES = 8
SHARDS = 4


def shards(folder: Path, images: int) -> tuple[Path, int]:
    """Write `images` JPEG files and their dataset; return its folder, and the bytes of the files."""
    source, dataset = folder / "images", folder / "shards"
    dataset.mkdir()
    size = sum(_write(source / "train" / f"class_{number % CLASSES}", number) for number in range(images))
    for shard in plan(source, name="photographs", shards=SHARDS).shards():
        with (dataset / shard.file).open("wb") as file:
            file.writelines(shard.stream())
    return dataset, size


def _write(folder: Path, number: int) -> int:
    """Write a crop of one of scikit-learn's two photographs, which are 640 x 427; return its bytes."""
    rng = np.random.default_rng(number)
    photograph = Image.fromarray(load_sample_images().images[number % 2])
    width = int(rng.integers(SIZE[0], 569))
    height = width * 3 // 4
    left, top = (int(rng.integers(0, spare + 1)) for spare in (640 - width, 427 - height))
    crop = photograph.crop((left, top, left + width, top + height)).resize(SIZE, Image.Resampling.BICUBIC)
    data = _encoded(crop, int(rng.integers(SMALLEST, LARGEST)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:05}.jpg").write_bytes(data)
    return len(data)


def _encoded(image: Image.Image, most: int) -> bytes:
    """Return the JPEG of the best quality with at most `most` bytes."""
    for quality in range(97, 30, -2):
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=quality)
        if stream.tell() <= most:
            break
    return stream.getvalue()
