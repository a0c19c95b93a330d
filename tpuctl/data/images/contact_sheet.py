"""Draws images side by side with captions, to check a dataset before training."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from math import ceil, sqrt

from PIL import Image, ImageDraw

_SIDE = 128
_CAPTION = 16
_GAP = 4
_BACKGROUND = (255, 255, 255)


def contact_sheet(images: Sequence[tuple[bytes, str]]) -> bytes:
    """Return a PNG of encoded images with their captions, in rows, each brought to the same size.

    Captions are drawn in ASCII, all that Pillow's own font has: `?` for each of the other characters.
    """
    columns = ceil(sqrt(len(images)))
    rows = ceil(len(images) / columns)
    width, height = _SIDE + _GAP, _SIDE + _CAPTION + _GAP
    sheet = Image.new("RGB", (columns * width + _GAP, rows * height + _GAP), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for number, (data, caption) in enumerate(images):
        x, y = _GAP + number % columns * width, _GAP + number // columns * height
        picture = _fitted(data)
        sheet.paste(picture, (x + (_SIDE - picture.width) // 2, y + (_SIDE - picture.height) // 2))
        draw.text((x, y + _SIDE + 2), _shortened(draw, caption), fill=(0, 0, 0))
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return stream.getvalue()


def undrawable(captions: Iterable[str]) -> str:
    """Return the characters of some captions that a contact sheet shows as `?`, each once, in order."""
    return "".join(
        sorted({character for caption in captions for character in caption if not character.isascii()})
    )


def _fitted(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        scale = _SIDE / max(image.size)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        sampling = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        return _as_rgb(image).resize(size, sampling)


def _as_rgb(image: Image.Image) -> Image.Image:
    """Return the image in RGB: transparent pixels become white, 16 bits become 8."""
    if image.mode.startswith("I"):
        image = image.point(lambda value: value / 256).convert("L")
    if image.mode in ("RGBA", "LA", "P"):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (*_BACKGROUND, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _shortened(draw: ImageDraw.ImageDraw, caption: str) -> str:
    text = caption.encode("ascii", "replace").decode()
    while draw.textlength(text) > _SIDE:
        text = text.removesuffix("..")[:-1] + ".."
    return text
