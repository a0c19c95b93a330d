"""One encoded image: whether it can be decoded to the end, and the shape TensorFlow will see."""

from __future__ import annotations

import io
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from tpuctl.errors import UsageError

# Pillow's mode -> channels and type that tf.io.decode_image returns by default
MODES = {
    "1": (1, "uint8"),
    "L": (1, "uint8"),
    "LA": (2, "uint8"),
    "P": (3, "uint8"),
    "RGB": (3, "uint8"),
    "RGBA": (4, "uint8"),
    "CMYK": (3, "uint8"),
    "I": (1, "uint16"),  # 16-bit PNG up to Pillow 11
    "I;16": (1, "uint16"),
}
_PALETTE_WITH_TRANSPARENCY = (4, "uint8")

_PNG_MAGIC, _JPEG_MAGIC = b"\x89PNG", b"\xff\xd8\xff"
_PNG_END = b"IEND\xaeB`\x82"
_OTHER_FORMATS = {b"GIF8": "GIF", b"BM": "BMP", b"RIFF": "WebP", b"II*\0": "TIFF", b"MM\0*": "TIFF"}


class Picture(NamedTuple):
    """The shape of a decoded image, and how it is encoded."""

    height: int
    width: int
    channels: int
    dtype: str
    encoding: str


def inspect(data: bytes, name: str) -> Picture:
    """Decode a PNG or JPEG image and return its shape; raises UsageError with `name` if that fails."""
    if not data:
        raise _bad(name, "is empty")
    try:
        return _decode(data)
    except Exception as error:  # Pillow's decoders raise many types, SyntaxError and struct.error among them
        raise _bad(name, _reason(data, error)) from error


def _decode(data: bytes) -> Picture:
    encoding = "png" if data.startswith(_PNG_MAGIC) else "jpeg"
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        image.verify()  # the checksums of a PNG, which decoding alone passes over
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        (width, height), mode = image.size, image.mode
        if mode not in MODES:
            raise ValueError(f"its mode {mode} is not one of {', '.join(MODES)}")
        channels, dtype = MODES[mode]
        if mode == "P" and "transparency" in image.info:
            channels, dtype = _PALETTE_WITH_TRANSPARENCY
        image.draft(None, (1, 1))  # a JPEG is read to its end all the same, at an eighth of the size
        image.load()
    if encoding == "png" and _PNG_END not in data:
        raise ValueError("it ends before its last chunk")
    return Picture(height, width, channels, dtype, encoding)


def _reason(data: bytes, error: Exception) -> str:
    for magic, name in _OTHER_FORMATS.items():
        if data.startswith(magic):
            return f"is a {name} image, and PNG or JPEG is wanted"
    if not data.startswith((_PNG_MAGIC, _JPEG_MAGIC)):
        return "is not a PNG or JPEG image"
    if isinstance(error, UnidentifiedImageError):
        return "cannot be decoded (its header is damaged)"
    return f"cannot be decoded ({str(error) or type(error).__name__})"


def _bad(name: str, reason: str) -> UsageError:
    return UsageError(f"'{name}' {reason}.", hint="Repair or remove it; nothing was published.", file=name)
