"""Decodes images in bounded memory: sizes are checked before a pixel is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Condition
from typing import TYPE_CHECKING

from tpuctl.data.images.formats import MOST_PIXELS, look, opened
from tpuctl.data.images.header import InvalidImage, broken

if TYPE_CHECKING:
    from PIL import Image

LARGE = 1 << 24
"""Pixels from which on images share `_AT_ONCE`, by however many threads they are decoded."""
_AT_ONCE = 3 * LARGE
"""Pixels of the large images that are decoded at the same time: two photographs of 24 megapixels."""
_MOST = f"at most {MOST_PIXELS / 1e6:.0f} megapixels are decoded"
TOO_LARGE = f"is too large: {_MOST}"
_MOST_SCANS = 100
"""Scans of a JPEG, each of which is a pass over all pixels; encoders write about ten."""
_TILE = 1 << 20
"""Pixels converted at once where a large image is shrunk, about."""


class _Budget:
    """Pixels that are decoded at once; whoever asks first gets first, and more than all of them: alone."""

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels
        self._used = 0
        self._first = self._next = 0
        self._changed = Condition()

    @contextmanager
    def share(self, pixels: int) -> Iterator[None]:
        """Wait until so many pixels are free, and hold them while the block runs."""
        share = min(pixels, self._pixels)
        with self._changed:
            turn, self._next = self._next, self._next + 1
            self._changed.wait_for(lambda: turn == self._first and self._used + share <= self._pixels)
            self._first += 1
            self._used += share
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._used -= share
                self._changed.notify_all()


_budget = _Budget(_AT_ONCE)


@contextmanager
def decodable(data: bytes, size: tuple[int, int] | None) -> Iterator[Image.Image]:
    """Yield the opened image; raises InvalidImage.

    With a `size` (height, width), which it is to be brought to, a JPEG that is several times as large is
    decoded at a fraction. Whatever else Pillow's decoders raise is raised as InvalidImage, too.
    """
    info = look(data)
    check_size(info.width, info.height)
    if info.encoding == "jpeg" and data.count(b"\xff\xda") > _MOST_SCANS:
        raise InvalidImage(f"has more than {_MOST_SCANS} scans: it takes very long to decode")
    pixels = info.width * info.height
    with _budget.share(pixels) if pixels > LARGE else nullcontext():
        try:
            with opened(data, info.encoding) as image:
                check_size(*image.size)  # a damaged file may have two headers
                if size:
                    image.draft(None, (2 * size[1], 2 * size[0]))
                yield image
        except InvalidImage:
            raise
        except (
            Exception
        ) as error:  # Pillow's decoders raise many types, SyntaxError and struct.error among them
            raise broken(str(error) or type(error).__name__) from error


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


def check_size(width: int, height: int) -> None:
    """Raise InvalidImage for more pixels than are decoded."""
    if width * height > MOST_PIXELS:
        raise InvalidImage(f"has {width} × {height} pixels, and {_MOST}", group=TOO_LARGE)
