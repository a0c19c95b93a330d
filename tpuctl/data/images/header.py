"""Reads the headers of PNG and JPEG images: the shape that TensorFlow decodes them to, what has to change.

No pixel is decoded. `inspect_image` checks as well that an image is complete: of a PNG every chunk and its
checksum are read; of a JPEG the segments up to the first scan, and the end marker, which the compressed data
itself cannot contain. `inspect_head` reads the beginning of a file alone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from tpuctl.data.images.profiles import changes_colours

_TAG = 0x0112
_ORDERS = {b"II": "<", b"MM": ">"}
_WRITTEN = {"<": b"\x12\x01\x03\x00", ">": b"\x01\x12\x00\x03"}
"""Byte order -> how the tag and its type, a short, are written."""
_UPRIGHT = 1
PNG_MAGIC, JPEG_MAGIC = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
PNG_END, JPEG_END = b"IEND\xaeB`\x82", b"\xff\xd9"
UPRIGHT, TO_SRGB, FROM_CMYK = "turned upright (EXIF)", "to sRGB", "from CMYK"
"""Why an image has to change, whatever the dataset: no reader of TFRecords turns it or knows its colours."""

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
"""Colour type -> channels of `tf.io.decode_image`; a palette with transparency has 4."""
_JPEG_CHANNELS = {1: 1, 3: 3, 4: 3}
"""Components -> channels: TensorFlow makes RGB of CMYK."""
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
"""Baseline, extended and progressive, which libjpeg decodes."""
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length."""
_EXIF, _PROFILE = b"Exif\0\0", b"ICC_PROFILE\0"
_MOST_VALUES = 1 << 29
"""Height times width times channels of the largest image that TensorFlow decodes (decode_image_op.cc)."""
_MOST_PROFILE = 1 << 22
"""Bytes of a profile that is unpacked from a PNG, at most."""
_MOST_SEGMENTS = 4096
"""Segments of a JPEG before its first scan: Pillow joins those of a kind one by one, in quadratic time."""


class ImageInfo(NamedTuple):
    """The shape of a decoded image, how it is encoded, and why it has to change whatever the dataset."""

    height: int
    width: int
    channels: int
    dtype: str
    encoding: str
    """`png`, `jpeg`, or the name of a format that has to change: `WebP`."""
    changes: tuple[str, ...] = ()

    @property
    def pixels(self) -> tuple[int, str]:
        """Channels and dtype, which all images of a source have in common."""
        return self.channels, self.dtype


class InvalidImage(ValueError):
    """Not an image, or a damaged one; the text completes a sentence about it: `is empty`."""

    def __init__(self, why: str, *, group: str = "", hint: str = "") -> None:
        """`group` is the reason without the figures of this one image, by which images are counted."""
        super().__init__(why)
        self.group = group or why
        self.hint = hint


class HeadTooShort(Exception):
    """The header of a file is longer than what was read of it."""


def inspect_image(data: bytes) -> ImageInfo:
    """Return the shape of a complete PNG or JPEG image; raises InvalidImage."""
    if data.startswith(PNG_MAGIC[:4]):
        return _checked(_png, data)
    if data.startswith(JPEG_MAGIC):
        return _checked(_jpeg, data)
    if not data:
        raise InvalidImage("is empty")
    raise InvalidImage("is not a PNG or JPEG image")


def inspect_head(head: bytes) -> ImageInfo:
    """Return the same of the beginning of a PNG or JPEG file; raises InvalidImage, HeadTooShort."""
    read = _png_head if head.startswith(PNG_MAGIC[:4]) else _jpeg_head
    try:
        return _bounded(read(head)[0])
    except (struct.error, IndexError):
        raise HeadTooShort from None


def _checked(read: Callable[[bytes], ImageInfo], data: bytes) -> ImageInfo:
    try:
        return _bounded(read(data))
    except (struct.error, IndexError):
        raise broken("it ends in the middle") from None


def _bounded(info: ImageInfo) -> ImageInfo:
    if info.height * info.width * info.channels > _MOST_VALUES:
        size = f"{info.width} × {info.height} pixels"
        raise InvalidImage(
            f"has {size}, more than TensorFlow decodes", group="has more pixels than TensorFlow decodes"
        )
    return info


def broken(reason: str) -> InvalidImage:
    """Return the error for a damaged image."""
    return InvalidImage(f"cannot be decoded ({reason})")


def _png(data: bytes) -> ImageInfo:
    info, at = _png_head(data)
    view = memoryview(data)
    pixels = 0
    while True:
        size, kind = struct.unpack_from(">I4s", data, at)
        _check_chunk(view, at, size, kind)
        pixels += size if kind == b"IDAT" else 0
        at += 12 + size
        if kind == b"IEND":
            break
    if not pixels:
        raise broken("it has no pixels")
    return info


def _png_head(data: bytes) -> tuple[ImageInfo, int]:
    """Return the shape, and where the pixels begin."""
    view = memoryview(data)
    at, palette_is_clear = len(PNG_MAGIC), False
    header: tuple[int, int, int, int] | None = None
    changes: list[str] = []
    seen = set[bytes]()  # a second profile is none of the image, and unpacking each takes its time
    while True:
        size, kind = struct.unpack_from(">I4s", data, at)
        if header is None and (kind != b"IHDR" or size != 13):
            raise broken("its header is damaged")
        if kind in (b"IDAT", b"IEND") and header:
            break
        _check_chunk(view, at, size, kind)
        if header is None:
            header = struct.unpack_from(">IIBB", data, at + 8)
        content = data[at + 8 : at + 8 + size] if kind in (b"eXIf", b"iCCP") else b""
        if content and kind not in seen:
            seen.add(kind)
            if orientation(content) > 1 if kind == b"eXIf" else _png_colours(content):
                changes.append(UPRIGHT if kind == b"eXIf" else TO_SRGB)
        palette_is_clear |= kind == b"tRNS"
        at += 12 + size
    return _png_shape(*header, palette_is_clear=palette_is_clear)._replace(changes=tuple(changes)), at


def _check_chunk(view: memoryview, at: int, size: int, kind: bytes) -> None:
    end = at + 8 + size
    (checksum,) = struct.unpack_from(">I", view, end)
    if zlib.crc32(view[at + 4 : end]) != checksum:
        raise broken(f"the checksum of its {kind.decode('ascii', 'replace')} chunk does not match")


def _png_colours(content: bytes) -> bool:
    try:
        profile = zlib.decompressobj().decompress(content[content.index(b"\0") + 2 :], _MOST_PROFILE)
    except (zlib.error, ValueError):
        return False
    return profile[16:20] == b"RGB " and changes_colours(profile)


def _png_shape(width: int, height: int, depth: int, colour: int, *, palette_is_clear: bool) -> ImageInfo:
    if colour not in _PNG_CHANNELS or not width or not height:
        raise broken("its header is damaged")
    channels = 4 if colour == 3 and palette_is_clear else _PNG_CHANNELS[colour]
    return ImageInfo(height, width, channels, "uint16" if (depth, colour) == (16, 0) else "uint8", "png")


def _jpeg(data: bytes) -> ImageInfo:
    info, at = _jpeg_head(data)
    if data.rfind(JPEG_END, at) < 0:
        raise broken("it ends before its last marker")
    return info


def _jpeg_head(data: bytes) -> tuple[ImageInfo, int]:
    """Return the shape, and where the first scan begins."""
    at = 2
    info: ImageInfo | None = None
    changes: list[str] = []
    parts: list[bytes] = []
    segments = 0
    while True:
        if data[at] != 0xFF:
            raise broken("its header is damaged")
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker == 0xD9:
            raise broken("it has no pixels")
        if marker in _ALONE:
            at += 2
            continue
        segments += 1
        if segments > _MOST_SEGMENTS:
            raise broken(f"its header has more than {_MOST_SEGMENTS} segments")
        size = (data[at + 2] << 8) | data[at + 3]
        if marker in _FRAMES:
            info = _jpeg_shape(*struct.unpack_from(">BHHB", data, at + 4))
        elif marker == 0xE1 and data.startswith(_EXIF, at + 4):
            if orientation(_segment(data, at, size, 10)) > 1:
                changes.append(UPRIGHT)
        elif marker == 0xE2 and data.startswith(_PROFILE, at + 4):
            parts.append(_segment(data, at, size, 18))
        elif marker in _OTHER_FRAMES:
            raise broken("its kind of compression is not supported")
        at += 2 + size
        if marker == 0xDA:
            break
    if info is None:
        raise broken("its header is damaged")
    if parts and info.channels == 3 and changes_colours(b"".join(parts)):
        changes.append(TO_SRGB)
    return info._replace(changes=(*info.changes, *dict.fromkeys(changes))) if changes else info, at


def _segment(data: bytes, at: int, size: int, head: int) -> bytes:
    """Return what a segment holds after its head; raises IndexError if it is cut off."""
    if at + 2 + size > len(data):
        raise IndexError
    return data[at + head : at + 2 + size]


def _jpeg_shape(precision: int, height: int, width: int, components: int) -> ImageInfo:
    if components not in _JPEG_CHANNELS or not width or not height:
        raise broken("its header is damaged")
    if precision != 8:
        raise broken(f"it has {precision} bits a pixel and channel, expected 8")
    changes = (FROM_CMYK,) if components == 4 else ()
    return ImageInfo(height, width, _JPEG_CHANNELS[components], "uint8", "jpeg", changes)


# Reads the orientation of a picture from its EXIF data: a camera stores how it was held.


def orientation(exif: bytes) -> int:
    """Return the orientation, 1 (upright) to 8, in EXIF data from its TIFF header on; 1 where it has none."""
    order = _ORDERS.get(exif[:2])
    if order is None or _WRITTEN[order] not in exif:
        return _UPRIGHT
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, at)
            if tag == _TAG:
                return value if 1 <= value <= 8 else _UPRIGHT
    except struct.error:
        pass  # damaged data says nothing
    return _UPRIGHT
