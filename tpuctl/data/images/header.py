"""Checks that an encoded image is complete, and reads the shape that TensorFlow will decode it to.

No pixel is decoded: of a PNG every chunk and its checksum are read; of a JPEG the segments up to the first
scan, and the end marker, which the compressed data itself cannot contain.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

_PNG_MAGIC, _JPEG_MAGIC = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_OTHER_FORMATS = {b"GIF8": "GIF", b"BM": "BMP", b"RIFF": "WebP", b"II*\0": "TIFF", b"MM\0*": "TIFF"}

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""Colour type -> channels of `tf.io.decode_image`; a palette with transparency has 4."""
_JPEG_CHANNELS = {1: 1, 3: 3, 4: 3}
"""Components -> channels: TensorFlow makes RGB of CMYK."""
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
"""Baseline, extended and progressive, which libjpeg decodes."""
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length."""


_MOST_VALUES = 1 << 29
"""Height times width times channels of the largest image that TensorFlow decodes (decode_image_op.cc)."""


class ImageInfo(NamedTuple):
    """The shape of a decoded image, and how it is encoded."""

    height: int
    width: int
    channels: int
    dtype: str
    encoding: str

    @property
    def pixels(self) -> tuple[int, str]:
        """Channels and dtype, which all images of a source have in common."""
        return self.channels, self.dtype


class InvalidImage(ValueError):
    """Not a PNG or JPEG image, or a damaged one; the text completes a sentence about it: `is empty`."""


def inspect_image(data: bytes) -> ImageInfo:
    """Return the shape of a PNG or JPEG image; raises InvalidImage."""
    if data.startswith(_PNG_MAGIC[:4]):
        return _checked(_png, data)
    if data.startswith(_JPEG_MAGIC):
        return _checked(_jpeg, data)
    if not data:
        raise InvalidImage("is empty")
    for magic, name in _OTHER_FORMATS.items():
        if data.startswith(magic):
            raise InvalidImage(f"is a {name} image, expected PNG or JPEG")
    raise InvalidImage("is not a PNG or JPEG image")


def _checked(read: Callable[[bytes], ImageInfo], data: bytes) -> ImageInfo:
    try:
        info = read(data)
    except (struct.error, IndexError):
        raise _broken("it ends in the middle") from None
    if info.height * info.width * info.channels > _MOST_VALUES:
        raise InvalidImage(f"has {info.width} × {info.height} pixels, more than TensorFlow decodes")
    return info


def _broken(reason: str) -> InvalidImage:
    return InvalidImage(f"cannot be decoded ({reason})")


def _png(data: bytes) -> ImageInfo:
    view = memoryview(data)
    at, palette_is_clear, pixels = len(_PNG_MAGIC), False, 0
    header: tuple[int, int, int, int] | None = None
    while True:
        size, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + size
        (checksum,) = struct.unpack_from(">I", data, end)
        if zlib.crc32(view[at + 4 : end]) != checksum:
            raise _broken(f"the checksum of its {kind.decode('ascii', 'replace')} chunk does not match")
        if header is None:
            if kind != b"IHDR" or size != 13:
                raise _broken("its header is damaged")
            header = struct.unpack_from(">IIBB", data, at + 8)
        palette_is_clear |= kind == b"tRNS"
        pixels += size if kind == b"IDAT" else 0
        at = end + 4
        if kind == b"IEND":
            break
    if not pixels:
        raise _broken("it has no pixels")
    return _png_shape(*header, palette_is_clear=palette_is_clear)


def _png_shape(width: int, height: int, depth: int, colour: int, *, palette_is_clear: bool) -> ImageInfo:
    if colour not in _PNG_CHANNELS or not width or not height:
        raise _broken("its header is damaged")
    channels = 4 if colour == 3 and palette_is_clear else _PNG_CHANNELS[colour]
    return ImageInfo(height, width, channels, "uint16" if (depth, colour) == (16, 0) else "uint8", "png")


def _jpeg(data: bytes) -> ImageInfo:
    at = 2
    info: ImageInfo | None = None
    while True:
        if data[at] != 0xFF:
            raise _broken("its header is damaged")
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker == 0xD9:
            raise _broken("it has no pixels")
        if marker in _ALONE:
            at += 2
            continue
        (size,) = struct.unpack_from(">H", data, at + 2)
        if marker in _FRAMES:
            info = _jpeg_shape(*struct.unpack_from(">BHHB", data, at + 4))
        if marker in _OTHER_FRAMES:
            raise _broken("its kind of compression is not supported")
        at += 2 + size
        if marker == 0xDA:
            break
    if info is None:
        raise _broken("its header is damaged")
    if data.rfind(b"\xff\xd9", at) < 0:
        raise _broken("it ends before its last marker")
    return info


def _jpeg_shape(precision: int, height: int, width: int, components: int) -> ImageInfo:
    if components not in _JPEG_CHANNELS or not width or not height:
        raise _broken("its header is damaged")
    if precision != 8:
        raise _broken(f"it has {precision} bits a pixel and channel, expected 8")
    return ImageInfo(height, width, _JPEG_CHANNELS[components], "uint8", "jpeg")
