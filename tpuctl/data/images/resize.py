"""Resizes an encoded image, and encodes it again in its own format.

JPEG is written at quality 95 with 4:2:0 chroma, PNG without loss. An image is stretched where it must be, as
`tf.image.resize` does. The same bytes come out for the same version of Pillow.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tpuctl.data.images.decoding import decodable, shrunk

if TYPE_CHECKING:
    from PIL import Image

QUALITY = 95

_MODES = {"1": "L", "CMYK": "RGB", "I;16": "I"}
"""Modes that cannot be resized well -> the mode used instead: TensorFlow decodes the result alike."""


def resized(data: bytes, size: tuple[int, int]) -> bytes:
    """Return a PNG or JPEG image brought to `size` (height, width); raises InvalidImage."""
    from PIL import Image  # noqa: PLC0415  most uploads decode nothing

    height, width = size
    stream = io.BytesIO()
    with decodable(data, size) as image:
        mode, encoding = image.mode, image.format
        small = _convertible(shrunk(image, size, {**_MODES, "P": _palette_mode(image)}))
        resized_image = small.resize((width, height), Image.Resampling.LANCZOS)
        if encoding == "JPEG":
            resized_image.save(stream, "JPEG", quality=QUALITY, subsampling="4:2:0")
        else:
            final = resized_image.convert("I;16") if mode.startswith("I") else resized_image
            final.save(stream, "PNG")
    return stream.getvalue()


def _convertible(image: Image.Image) -> Image.Image:
    mode = _palette_mode(image) if image.mode == "P" else _MODES.get(image.mode, image.mode)
    return image.convert(mode)


def _palette_mode(image: Image.Image) -> str:
    return "RGBA" if "transparency" in image.info else "RGB"
