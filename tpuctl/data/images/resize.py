"""Resizes an encoded image, and encodes it again in its own format.

JPEG is written at quality 95 with 4:2:0 chroma, PNG without loss. An image is stretched where it must be, as
`tf.image.resize` does. The same bytes come out for the same version of Pillow.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tpuctl.data.images.header import InvalidImage

if TYPE_CHECKING:
    from PIL import Image

QUALITY = 95

_MODES = {"1": "L", "CMYK": "RGB", "I;16": "I"}
"""Modes that cannot be resized well -> the mode used instead: TensorFlow decodes the result alike."""


def resized(data: bytes, size: tuple[int, int]) -> bytes:
    """Return a PNG or JPEG image brought to `size` (height, width); raises InvalidImage."""
    from PIL import Image  # noqa: PLC0415  most uploads decode nothing

    height, width = size
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            image.draft(None, (2 * width, 2 * height))  # a JPEG four times too large is decoded at a fraction
            mode, encoding = image.mode, image.format
            resized_image = _convertible(image).resize((width, height), Image.Resampling.LANCZOS)
        stream = io.BytesIO()
        if encoding == "JPEG":
            resized_image.save(stream, "JPEG", quality=QUALITY, subsampling="4:2:0")
        else:
            final = resized_image.convert("I;16") if mode.startswith("I") else resized_image
            final.save(stream, "PNG")
        return stream.getvalue()
    except Exception as error:  # Pillow's decoders raise many types, SyntaxError and struct.error among them
        raise InvalidImage(f"cannot be decoded ({str(error) or type(error).__name__})") from error


def _convertible(image: Image.Image) -> Image.Image:
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image.convert(_MODES.get(image.mode, image.mode))
