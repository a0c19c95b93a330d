"""Small sources of annotated pictures, as their users have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.data.source_trees import write_image

CATEGORIES = [{"id": 3, "name": "dog", "supercategory": "animal"}, {"id": 1, "name": "cat"}]


def coco_content(count: int = 3) -> dict[str, Any]:
    """Return annotations of so many pictures of 8 × 6 pixels: as many boxes as the number of each."""
    images = [{"id": 10 + n, "file_name": f"{n}.png", "width": 8, "height": 6} for n in range(count)]
    annotations = [
        {
            "id": 100 * n + box,
            "image_id": 10 + n,
            "category_id": (1, 3)[box % 2],
            "bbox": [2, 1.5, 4, 3 - box],
            "area": 12.75,
            "iscrowd": box % 2,
            "segmentation": [[2, 1.5, 6, 1.5, 6, 4.5]],
        }
        for n in range(count)
        for box in range(n)
    ]
    return {"info": {}, "images": images, "categories": CATEGORIES, "annotations": annotations}


def write_coco(root: Path, content: Any = None, *, split: str = "train2017") -> Path:
    """Write pictures and their annotations in COCO's own layout, and return the JSON."""
    content = content or coco_content()
    for number in range(3):
        write_image(root / split / f"{number}.png", shade=number)
    (root / "annotations").mkdir(exist_ok=True)
    file = root / "annotations" / f"instances_{split}.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def write_mask(path: Path, *, size: tuple[int, int] = (8, 6), mode: str = "L", shade: int = 0) -> Path:
    """Write a mask with the numbers 0 to 3."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = (np.arange(size[0] * size[1], dtype=np.uint8).reshape(size[::-1]) + shade) % 4
    mask = Image.fromarray(numbers)
    if mode == "P":
        mask.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    (mask if mode == "P" else mask.convert(mode)).save(path)
    return path


def turn(path: Path, orientation: int) -> None:
    """Let a picture say how its camera was held; its pixels stay as they are."""
    with Image.open(path) as image:
        image.load()
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)
