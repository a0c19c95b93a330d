"""Draws images side by side with captions, to check a dataset before training."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from math import ceil, sqrt
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from tpuctl import printable
from tpuctl.data.images.decoding import decodable, shrunk
from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.data.images.report import conversion_of

_SIDE = 128
_CAPTION, _LINE = 16, 14
"""Height of a caption, and what a second line of it takes more."""
_GAP, _SIZE = 4, 11
_BACKGROUND, _MISSING = (255, 255, 255), (160, 160, 160)
_CONVERTED = (200, 90, 0)
"""Colour of the frame and the line that show what was converted."""
_MODES = {"1": "L", "P": "RGBA", "I;16": "I"}
"""Modes that cannot be shrunk -> the mode used instead."""


class ContactSheet(NamedTuple):
    """The sheet as a PNG, and why the images that are missing in it were not drawn."""

    png: bytes
    problems: Sequence[str]
    """Each completes a sentence about an image: `cannot be decoded (...)`."""
    converted: int
    """Images whose files were changed for the dataset: those in frames."""


def contact_sheet(images: Sequence[tuple[bytes, str]]) -> ContactSheet:
    """Draw encoded images with their captions, in rows, each brought to the same size.

    A crossed box stands for an image that cannot be decoded, or has too many pixels. An image that was
    converted for the dataset has a frame, and why in a second line of its caption.
    """
    problems = []
    conversions = [conversion_of(data) for data, _ in images]
    caption_height = _CAPTION + _LINE * any(conversions)
    columns = ceil(sqrt(len(images)))
    rows = ceil(len(images) / columns)
    width, height = _SIDE + _GAP, _SIDE + caption_height + _GAP
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
        _write(draw, (x, y + _SIDE + 2), caption, (0, 0, 0))
        if why := conversions[number]:
            draw.rectangle((x, y, x + _SIDE - 1, y + _SIDE - 1), outline=_CONVERTED, width=2)
            _write(draw, (x, y + _SIDE + 2 + _LINE), why, _CONVERTED)
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return ContactSheet(stream.getvalue(), problems, sum(map(bool, conversions)))


def undrawable(captions: Iterable[str]) -> str:
    """Return the characters of some captions that a contact sheet shows as `?`, each once, in order."""
    letters = unicodedata.normalize("NFC", "".join(map(printable.line, captions)))
    return "".join(sorted(letter for letter in {*letters} if letter != "?" == _drawn(letter)))


@cache
def caption_font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's own font, whose letters are those of English."""
    return ImageFont.load_default(_SIZE)


def _drawn(letter: str) -> str:
    """Return a letter as the font has it: without its accents, or `?`."""
    plain = unicodedata.normalize("NFKD", letter)[0]
    return plain if plain.isascii() else "?"


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


def _write(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, colour: tuple[int, int, int]
) -> None:
    """Write one line, cut where it is wider than an image."""
    line = "".join(map(_drawn, unicodedata.normalize("NFC", printable.line(text))))
    line = line[: _SIDE + 1]  # a letter is at least a pixel wide
    font = caption_font()
    while draw.textlength(line, font) > _SIDE:
        line = line.removesuffix("..")[:-1] + ".."
    draw.text(place, line, fill=colour, font=font)
