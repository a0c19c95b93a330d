"""Converts an image to what a dataset needs: upright, in sRGB, with its channels and bits, as PNG or JPEG.

What was lossy before, as photographs are (JPEG, WebP, HEIC, AVIF, JPEG 2000), becomes a JPEG of quality 95
with 4:2:0 chroma, unless it has transparency; everything else a PNG, without loss. The same bytes come out
for the same version of Pillow. A comment in the result says why it was converted.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tpuctl.data.images.decoding import decodable, shrunk
from tpuctl.data.images.formats import FORMATS
from tpuctl.data.images.header import ImageInfo
from tpuctl.data.images.notes import comment
from tpuctl.data.images.profiles import changes_colours

if TYPE_CHECKING:
    from PIL import Image

QUALITY = 95
_WHITE = 255
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_CLEAR = ("RGBA", "LA")
_PLAIN = {
    "1": "L", "YCbCr": "RGB", "HSV": "RGB", "RGBX": "RGB", "RGBa": "RGBA", "La": "LA", "PA": "RGBA",
    "I;16": "I", "I;16B": "I",
}  # fmt: skip
"""Modes that cannot be shrunk or turned into others well -> the mode used instead."""


class Goal(NamedTuple):
    """What an image is brought to."""

    channels: int
    dtype: str
    size: tuple[int, int] | None
    """Height and width; None: as it is."""


def converted(data: bytes, info: ImageInfo, goal: Goal, why: tuple[str, ...]) -> bytes:
    """Return the image `data`, which `info` describes, as a PNG or JPEG; raises InvalidImage."""
    with decodable(data, goal.size) as image:
        image.load()  # Pillow turns a TIFF upright itself, and says so only then
        picture = _upright(_coloured(_sized(image, goal.size)), image)
        if goal.size and picture.size != goal.size[::-1]:
            picture = _resized(picture, goal.size)
        final = _with_channels(picture, goal)
        if FORMATS[info.encoding].lossy and final.mode in ("L", "RGB") and not _lossless(data, info):
            return _jpeg(final, why)
        return _png(final, why)


def _sized(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    """Return an image of a plain mode; a large one that is to become small at a fraction."""
    modes = {**_PLAIN, "P": _palette_mode(image)}
    if size:
        image = shrunk(image, size if not _lies(image) else size[::-1], modes)
    if image.mode in modes:
        image = image.convert(modes[image.mode])
    return image


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  most uploads decode nothing

    height, width = size
    return image.resize((width, height), images.Resampling.LANCZOS)


def _coloured(image: Image.Image) -> Image.Image:
    """Return the image in sRGB; of CMYK without a profile in the plain colours of its inks."""
    profile = image.info.get("icc_profile") or b""
    if image.mode in ("RGB", "RGBA", "CMYK") and changes_colours(profile):
        image = _in_srgb(image, profile)
    if image.mode == "LAB":
        return _from_lab(image)
    return image.convert("RGB") if image.mode == "CMYK" else image


def _in_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    from PIL import ImageCms  # noqa: PLC0415  few images have another profile

    mode = "RGBA" if image.mode == "RGBA" else "RGB"
    try:
        own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        changed = ImageCms.profileToProfile(image, own, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError):
        return image  # a damaged profile, which all readers pass over
    return changed or image


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms  # noqa: PLC0415  as above

    profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    return ImageCms.profileToProfile(image, *profiles, outputMode="RGB") or image


def _upright(image: Image.Image, original: Image.Image) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  as above

    turns = (
        images.Transpose.FLIP_LEFT_RIGHT, images.Transpose.ROTATE_180, images.Transpose.FLIP_TOP_BOTTOM,
        images.Transpose.TRANSPOSE, images.Transpose.ROTATE_270, images.Transpose.TRANSVERSE,
        images.Transpose.ROTATE_90,
    )  # fmt: skip
    orientation = _orientation(original)
    return image.transpose(turns[orientation - 2]) if orientation > 1 else image


def _orientation(image: Image.Image) -> int:
    value = image.getexif().get(0x0112, 1)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _lies(image: Image.Image) -> bool:
    """Tell whether its height becomes its width."""
    return _orientation(image) >= 5


def _with_channels(image: Image.Image, goal: Goal) -> Image.Image:
    """Return the image with the channels of the goal; what is transparent becomes white if they have none."""
    if image.mode == "I":
        image = _narrow(image, goal)
        if goal.dtype == "uint16":
            return image
    elif goal.dtype == "uint16":
        return _widened(_with_channels(image, goal._replace(dtype="uint8")))
    mode = _MODES[goal.channels]
    if image.mode in _CLEAR and mode not in _CLEAR:
        image = _on_white(image.convert("RGBA") if mode == "RGB" else image)
    return image if image.mode == mode else image.convert(mode)


def _on_white(image: Image.Image) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  as above

    opaque = "RGB" if image.mode == "RGBA" else "L"
    page = images.new(opaque, image.size, (_WHITE,) * len(opaque) if opaque == "RGB" else _WHITE)
    page.paste(image.convert(opaque), mask=image.getchannel("A"))
    return page


def _narrow(image: Image.Image, goal: Goal) -> Image.Image:
    """Return 16 bits a pixel, in a mode of 32, in a mode of 16, or of 8."""
    from PIL import Image as images  # noqa: PLC0415  as above

    if goal.dtype == "uint16":
        return image.convert("I;16")
    return images.fromarray((np.asarray(image) >> 8).clip(0, _WHITE).astype(np.uint8))


def _widened(image: Image.Image) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  as above

    return images.fromarray(np.asarray(image).astype(np.uint16) * 257)


def _palette_mode(image: Image.Image) -> str:
    return "RGBA" if "transparency" in image.info else "RGB"


def _lossless(data: bytes, info: ImageInfo) -> bool:
    return info.encoding == "WebP" and data[12:16] == b"VP8L"


def _jpeg(image: Image.Image, why: tuple[str, ...]) -> bytes:
    stream = io.BytesIO()
    image.info.clear()  # what is said of the original: its profile, its orientation
    image.save(stream, "JPEG", quality=QUALITY, subsampling="4:2:0", comment=comment(why))
    return stream.getvalue()


def _png(image: Image.Image, why: tuple[str, ...]) -> bytes:
    from PIL.PngImagePlugin import PngInfo  # noqa: PLC0415  as above

    stream, notes = io.BytesIO(), PngInfo()
    if text := comment(why):
        notes.add_text("Comment", text)
    image.info.clear()
    image.save(stream, "PNG", pnginfo=notes)
    return stream.getvalue()
