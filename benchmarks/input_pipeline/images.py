"""The pictures of benchmarks/input_pipeline: photographs, in shards as `tpuctl data` makes them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from tpuctl.data.plan import plan

SIZE = (500, 375)
"""Width and height, which most pictures of ImageNet have."""
SMALLEST, LARGEST = 60_000, 160_000
"""Bytes of a file; ImageNet's have 110,000 on average."""
CLASSES = 8
SHARDS = 4


def shards(folder: Path, pictures: int) -> tuple[Path, int]:
    """Write so many JPEG files, and the dataset made of them; return its folder, and the files' bytes."""
    source, made = folder / "pictures", folder / "shards"
    made.mkdir()
    size = sum(_write(source / "train" / f"class_{one % CLASSES}", one) for one in range(pictures))
    for shard in plan(source, name="photographs", shards=SHARDS).shards():
        with (made / shard.file).open("wb") as file:
            file.writelines(shard.stream())
    return made, size


def _write(folder: Path, number: int) -> int:
    """Write a part of one of scikit-learn's two photographs, which are 640 x 427; return its bytes."""
    rng = np.random.default_rng(number)
    photograph = Image.fromarray(load_sample_images().images[number % 2])
    width = int(rng.integers(SIZE[0], 569))
    height = width * 3 // 4
    left, top = (int(rng.integers(0, spare + 1)) for spare in (640 - width, 427 - height))
    part = photograph.crop((left, top, left + width, top + height)).resize(SIZE, Image.Resampling.BICUBIC)
    data = _encoded(part, int(rng.integers(SMALLEST, LARGEST)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:05}.jpg").write_bytes(data)
    return len(data)


def _encoded(picture: Image.Image, most: int) -> bytes:
    """Return the JPEG of the best quality that has so many bytes at most."""
    for quality in range(97, 30, -2):
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=quality)
        if stream.tell() <= most:
            break
    return stream.getvalue()
