"""Small trees of images, made as a user would have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PIL import Image

Tree = Callable[..., Path]


def write_image(path: Path, *, size: tuple[int, int] = (8, 6), mode: str = "RGB", shade: int = 0) -> Path:
    """Write one image whose content depends on `shade`; the suffix decides the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    gray = Image.new("L", size)
    gray.putdata([(shade * 31 + i * 7) % 256 for i in range(size[0] * size[1])])
    gray.convert(mode).save(path)
    return path
