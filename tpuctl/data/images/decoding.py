"""Decodes images in bounded memory: sizes are checked before a pixel is decoded.

- Converts images on all cores, ahead of the thread that writes them and in its order.
- Writes pixels as a PNG image without compression, which gives the same bytes with every zlib.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from threading import Condition, Lock
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tpuctl.data.images.header import MOST_PIXELS, InvalidImage, broken, look, opened

if TYPE_CHECKING:
    from PIL import Image


_CORES = os.cpu_count() or 1
_WAITING = 2 * _CORES
"""Images converted ahead of each writer: while a large one is converted, the cores have others."""
_MOST_BYTES = 1 << 25
"""Bytes of what waits for the item in front of it, besides one."""

P = TypeVar("P")
R = TypeVar("R")


class Ahead:
    """Threads that begin with the first image to be converted; Pillow works without Python's lock."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    def map(
        self,
        work: Callable[[int, P], R],
        items: Iterable[tuple[int, P, bool]],
        weigh: Callable[[P], int] = lambda content: len(content) if isinstance(content, bytes) else 0,
    ) -> Iterator[tuple[int, R]]:
        """Yield each item's number and the result of `work` on it, in order.

        `items` are number, content, and whether the work takes long; what does not is done at once. `weigh`
        returns the bytes of a content.
        """
        waiting: deque[tuple[int, int, R | Future[R]]] = deque()
        size = 0
        try:
            for number, content, slow in items:
                if not slow and not waiting:
                    yield number, work(number, content)
                    continue
                result = self._threads().submit(work, number, content) if slow else work(number, content)
                waiting.append((number, weigh(content), result))
                size += waiting[-1][1]
                while waiting and (len(waiting) > _WAITING or size > _MOST_BYTES):
                    size -= waiting[0][1]
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        finally:
            for _, _, result in waiting:
                if isinstance(result, Future):
                    result.cancel()

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            # twice the cores: some wait until a large image leaves them room
            self._pool = self._pool or ThreadPoolExecutor(2 * _CORES, thread_name_prefix="image")
            return self._pool


def _first(waiting: deque[tuple[int, int, R | Future[R]]]) -> tuple[int, R]:
    number, _, result = waiting.popleft()
    return number, result.result() if isinstance(result, Future) else result


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


_COLOURS = {1: 0, 3: 2, 4: 6}
"""Channels -> PNG's number for grey, RGB and RGBA."""
CHANNELS = frozenset(_COLOURS)
_STORED = 65_535
"""Bytes of the largest block that deflate stores as it is (RFC 1951)."""


@dataclass(frozen=True)
class RawPng:
    """Images of one shape."""

    height: int
    width: int
    channels: int

    def encode(self, pixels: bytes) -> bytes:
        """Return the image whose bytes, row after row, are `pixels`."""
        lines = np.zeros(
            (self.height, self.width * self.channels + 1), np.uint8
        )  # each begins with its filter
        lines[:, 1:] = np.frombuffer(pixels, np.uint8).reshape(self.height, -1)
        data = lines.tobytes()
        stored = [
            struct.pack("<BHH", start + _STORED >= len(data), len(block), len(block) ^ 0xFFFF) + block
            for start in range(0, len(data), _STORED)
            if (block := data[start : start + _STORED])
        ]
        content = b"".join((b"IDAT\x78\x01", *stored, struct.pack(">I", zlib.adler32(data))))
        checksum = struct.pack(">I", zlib.crc32(content))
        return b"".join((self._head, struct.pack(">I", len(content) - 4), content, checksum, _END))

    @cached_property
    def _head(self) -> bytes:
        shape = struct.pack(
            ">4sIIBBBBB", b"IHDR", self.width, self.height, 8, _COLOURS[self.channels], 0, 0, 0
        )
        return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + shape + struct.pack(">I", zlib.crc32(shape))


_END = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))
