"""Decodes PNG and JPEG images in bounded memory: sizes are checked before a pixel is decoded."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING

from tpuctl.data.images.header import InvalidImage, inspect_image

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 1 << 27
"""Pixels of the largest image that is decoded: 134 megapixels, half a gigabyte in memory."""
LARGE = 1 << 24
"""Pixels from which on images are decoded one at a time, by however many threads."""
_MOST_SCANS = 100
"""Scans of a JPEG, each of which is a pass over all pixels; encoders write about ten."""
_TILE = 1 << 20
"""Pixels converted at once where a large image is shrunk, about."""

_one_at_a_time = Lock()


@contextmanager
def decodable(data: bytes, size: tuple[int, int]) -> Iterator[Image.Image]:
    """Yield the opened image, which is to be brought to `size` (height, width); raises InvalidImage.

    A JPEG that is several times as large is decoded at a fraction. Whatever else Pillow's decoders raise is
    raised as InvalidImage, too.
    """
    info = inspect_image(data)
    _check(info.width, info.height)
    if info.encoding == "jpeg" and data.count(b"\xff\xda") > _MOST_SCANS:
        raise InvalidImage(f"has more than {_MOST_SCANS} scans: it takes very long to decode")
    with _one_at_a_time if info.width * info.height > LARGE else nullcontext():
        try:
            with _opened(data, info.encoding) as image:
                _check(*image.size)  # a damaged file may have two headers
                image.draft(None, (2 * size[1], 2 * size[0]))
                yield image
        except InvalidImage:
            raise
        except (
            Exception
        ) as error:  # Pillow's decoders raise many types, SyntaxError and struct.error among them
            raise InvalidImage(f"cannot be decoded ({str(error) or type(error).__name__})") from error


def shrunk(image: Image.Image, size: tuple[int, int], modes: dict[str, str]) -> Image.Image:
    """Return a large image at a fraction, at least twice `size` (height, width); a small one as it is.

    It is converted from its mode to that in `modes`, a tile at a time: conversions of the whole image would
    take several times its memory.
    """
    from PIL import Image as images  # noqa: PLC0415  most uploads decode nothing

    across, down = (max(old // (2 * new), 1) for old, new in zip(image.size, reversed(size), strict=True))
    if image.width * image.height <= LARGE or across * down == 1:
        return image
    mode = modes.get(image.mode, image.mode)
    result = images.new(mode, (-(-image.width // across), -(-image.height // down)))
    for left, top, right, bottom in _tiles(image.size, across, down):
        tile = image.crop((left, top, right, bottom))
        tile = tile if mode == tile.mode else tile.convert(mode)
        result.paste(tile.reduce((across, down)), (left // across, top // down))
    return result


def _tiles(size: tuple[int, int], across: int, down: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the boxes of an image of this (width, height); they begin at multiples of `across` and `down`."""
    width, height = size
    columns = max(min(width, _TILE) // across, 1) * across
    rows = max(_TILE // columns // down, 1) * down
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield left, top, min(left + columns, width), min(top + rows, height)


def _check(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise InvalidImage(
            f"has {width} × {height} pixels, and at most {MOST_PIXELS / 1e6:.0f} megapixels are decoded"
        )


def _opened(data: bytes, encoding: str) -> Image.Image:
    """Open without `Image.open`, which prints a warning of its own about large images."""
    from PIL.JpegImagePlugin import JpegImageFile  # noqa: PLC0415
    from PIL.PngImagePlugin import PngImageFile  # noqa: PLC0415

    kinds = {"jpeg": JpegImageFile, "png": PngImageFile}
    return kinds[encoding](io.BytesIO(data))
