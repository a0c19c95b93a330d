"""Draws images side by side with captions, to check a dataset before training."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from math import ceil, sqrt
from typing import NamedTuple

from PIL import Image, ImageDraw

from tpuctl.data.images.decoding import decodable, shrunk
from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.text import printable

_SIDE = 128
_CAPTION = 16
_GAP = 4
_BACKGROUND, _MISSING = (255, 255, 255), (160, 160, 160)
_MODES = {"1": "L", "P": "RGBA", "I;16": "I"}
"""Modes that cannot be shrunk -> the mode used instead."""


class ContactSheet(NamedTuple):
    """The sheet as a PNG, and why the images that are missing in it were not drawn."""

    png: bytes
    problems: Sequence[str]
    """Each completes a sentence about an image: `cannot be decoded (...)`."""


def contact_sheet(images: Sequence[tuple[bytes, str]]) -> ContactSheet:
    """Draw encoded images with their captions, in rows, each brought to the same size.

    A crossed box stands for an image that cannot be decoded, or has too many pixels. Captions are drawn in
    ASCII, all that Pillow's own font has: `?` for each of the other characters.
    """
    problems = []
    columns = ceil(sqrt(len(images)))
    rows = ceil(len(images) / columns)
    width, height = _SIDE + _GAP, _SIDE + _CAPTION + _GAP
    sheet = Image.new("RGB", (columns * width + _GAP, rows * height + _GAP), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for number, (data, caption) in enumerate(images):
        x, y = _GAP + number % columns * width, _GAP + number // columns * height
        try:
            picture = _fitted(data)
        except InvalidImage as error:
            picture = _crossed_box()
            problems.append(str(error))
        sheet.paste(picture, (x + (_SIDE - picture.width) // 2, y + (_SIDE - picture.height) // 2))
        draw.text((x, y + _SIDE + 2), _shortened(draw, caption), fill=(0, 0, 0))
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return ContactSheet(stream.getvalue(), problems)


def undrawable(captions: Iterable[str]) -> str:
    """Return the characters of some captions that a contact sheet shows as `?`, each once, in order."""
    return "".join(
        sorted({letter for caption in captions for letter in printable.line(caption) if not letter.isascii()})
    )


def _fitted(data: bytes) -> Image.Image:
    info = inspect_image(data)
    scale = _SIDE / max(info.height, info.width)
    height, width = max(1, round(info.height * scale)), max(1, round(info.width * scale))
    with decodable(data, (height, width)) as image:
        sampling = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        return _as_rgb(shrunk(image, (height, width), _MODES)).resize((width, height), sampling)


def _as_rgb(image: Image.Image) -> Image.Image:
    """Return the image in RGB: transparent pixels become white, 16 bits become 8."""
    if image.mode.startswith("I"):
        image = image.point(lambda value: value / 256).convert("L")
    if image.mode in ("RGBA", "LA", "P"):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (*_BACKGROUND, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _crossed_box() -> Image.Image:
    box = Image.new("RGB", (_SIDE, _SIDE), _BACKGROUND)
    draw = ImageDraw.Draw(box)
    for line in ((0, 0, _SIDE - 1, _SIDE - 1), (0, _SIDE - 1, _SIDE - 1, 0)):
        draw.line(line, fill=_MISSING)
    draw.rectangle((0, 0, _SIDE - 1, _SIDE - 1), outline=_MISSING)
    return box


def _shortened(draw: ImageDraw.ImageDraw, caption: str) -> str:
    text = printable.line(caption).encode("ascii", "replace").decode()  # Pillow measures no text of two lines
    while draw.textlength(text) > _SIDE:
        text = text.removesuffix("..")[:-1] + ".."
    return text
