"""Recognizes images of all formats by their content, and opens them: PNG, JPEG, what Pillow reads besides.

TensorFlow reads PNG and JPEG; images of the other formats are converted. A file's name says nothing: scrapers
and colleagues give wrong ones.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import PIL

from tpuctl.data.images.header import (
    FROM_CMYK,
    JPEG_MAGIC,
    PNG_MAGIC,
    TO_SRGB,
    UPRIGHT,
    ImageInfo,
    InvalidImage,
    broken,
    inspect_image,
)
from tpuctl.data.images.profiles import changes_colours

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

FIRST_FRAME = "the first frame of several"
MOST_PIXELS = 1 << 27
"""Pixels of the largest image that is decoded: 134 megapixels, half a gigabyte in memory."""
_ORIENTATION = 0x0112
_REDUCED, _DNG = 254, 50706
"""Tags of a TIFF whose first page is a thumbnail, as raw photographs have it, and of one that says so."""


class _Format(NamedTuple):
    """A format that Pillow reads, or a plugin of it."""

    name: str
    module: str
    plugin: str
    lossy: bool = False


PNG = _Format("png", "PIL.PngImagePlugin", "PngImageFile")
JPEG = _Format("jpeg", "PIL.JpegImagePlugin", "JpegImageFile", lossy=True)
_FORMATS: tuple[_Format, ...] = (
    PNG,
    JPEG,
    _Format("WebP", "PIL.WebPImagePlugin", "WebPImageFile", lossy=True),
    _Format("GIF", "PIL.GifImagePlugin", "GifImageFile"),
    _Format("BMP", "PIL.BmpImagePlugin", "BmpImageFile"),
    _Format("TIFF", "PIL.TiffImagePlugin", "TiffImageFile"),
    _Format("JPEG 2000", "PIL.Jpeg2KImagePlugin", "Jpeg2KImageFile", lossy=True),
    _Format("AVIF", "PIL.AvifImagePlugin", "AvifImageFile", lossy=True),
    _Format("HEIC", "pillow_heif.as_plugin", "HeifImageFile", lossy=True),
)
FORMATS = {format.name: format for format in _FORMATS}
"""By name, which is `ImageInfo.encoding`."""
_MAGIC = (
    (PNG_MAGIC[:4], "png"),
    (JPEG_MAGIC, "jpeg"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
)
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_OTHERS = (
    (b"8BPS", "a Photoshop document"),
    (b"%PDF", "a PDF document"),
    (b"\0\0\1\0", "an icon (ICO)"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL image"),
    (b"PK\3\4", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
)
"""What lies among images and is recognized, to say so."""
_MARKUP = ((b"<svg", "an SVG drawing, which has no pixels"), (b"<html", "an HTML page, not an image"),
           (b"<!doctype html", "an HTML page, not an image"))  # fmt: skip
_BEGINNING = 1024
_CHANNELS = {
    "1": 1, "L": 1, "I;16": 1, "I;16B": 1, "LA": 2, "La": 2, "RGB": 3, "RGBX": 3, "YCbCr": 3,
    "LAB": 3, "HSV": 3, "CMYK": 3, "P": 3, "RGBA": 4, "RGBa": 4, "PA": 4,
}  # fmt: skip
"""Pillow's mode -> channels that the image has."""


def look(data: bytes) -> ImageInfo:
    """Return the shape of a complete image of any format; raises InvalidImage."""
    name = format_name(data)
    if name in ("png", "jpeg"):
        return inspect_image(data)
    with opened(data, name) as image:
        return _described(image, name)


def format_name(head: bytes) -> str:
    """Return the name of the format of a file that begins so; raises InvalidImage that says what it is."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    if head[4:8] == b"ftyp":
        return _of_brands(head)
    raise InvalidImage(_what_it_is(head))


def opened(data: bytes, name: str) -> ImageFile:
    """Open an image of a format without `Image.open`, which prints warnings of its own about large images."""
    plugin = _plugin(name)
    try:
        return plugin(io.BytesIO(data))
    except Exception as error:  # Pillow's plugins raise many types, SyntaxError and struct.error among them
        raise broken(str(error) or type(error).__name__) from error


def _plugin(name: str) -> Callable[[io.BytesIO], ImageFile]:
    _, module, plugin, _ = FORMATS[name]
    try:
        loaded: Any = import_module(module)
    except ImportError as error:
        raise InvalidImage(
            f"is a {name} image, which needs pillow-heif", hint="Install it: pip install pillow-heif."
        ) from error
    return loaded.__dict__[plugin]  # type: ignore[no-any-return]  # a class of images


def _of_brands(head: bytes) -> str:
    """Return the format of a file in boxes (ISO 14496-12), which begins with its brands."""
    brands = head[8 : min(int.from_bytes(head[:4], "big"), 256)]
    if b"avif" in brands or b"avis" in brands:
        return "AVIF"
    if any(brand in brands for brand in _HEIC_BRANDS):
        return "HEIC"
    raise InvalidImage("is a video, not an image")


def _what_it_is(head: bytes) -> str:
    if not head:
        return "is empty"
    for magic, name in _OTHERS:
        if head.startswith(magic):
            return f"is {name}"
    text = head[:_BEGINNING].lower()
    for beginning, name in _MARKUP:
        if beginning in text and text.lstrip().startswith(b"<"):
            return f"is {name}"
    printable = all(byte >= 32 or byte in b"\t\r\n\f" for byte in text)
    return "is a text, not an image" if printable else "is not an image, or of an unknown format"


def _described(image: ImageFile, name: str) -> ImageInfo:
    try:
        channels = _CHANNELS[image.mode]
        several = bool(getattr(image, "is_animated", False))
        turned = image.getexif().get(_ORIENTATION, 1) not in (0, 1)
        profile = image.info.get("icc_profile") or b""
        is_raw = name == "TIFF" and bool(image.tag_v2.get(_REDUCED, 0) & 1 or _DNG in image.tag_v2)  # type: ignore[attr-defined]
    except KeyError:
        raise InvalidImage(f"has pixels of the kind {image.mode}, expected 8 or 16 bits a channel") from None
    except Exception as error:  # as above
        raise broken(str(error) or type(error).__name__) from error
    if is_raw:
        raise InvalidImage("is a raw photograph, whose first image is a thumbnail")
    if image.mode == "P" and "transparency" in image.info:
        channels = 4
    reasons = (
        (True, f"from {name}"),
        (several, FIRST_FRAME),
        (turned, UPRIGHT),
        (image.mode == "CMYK", FROM_CMYK),
        (channels > 2 and image.mode != "CMYK" and changes_colours(profile), TO_SRGB),
    )
    dtype = "uint16" if image.mode.startswith("I;16") else "uint8"
    changes = tuple(reason for holds, reason in reasons if holds)
    return ImageInfo(image.height, image.width, channels, dtype, name, changes)


def library_versions() -> tuple[str, ...]:
    """Return the versions of the libraries that decide on the bytes of a converted image."""
    from importlib import metadata  # noqa: PLC0415  takes longer to import than most commands to start

    versions = [PIL.__version__]
    with suppress(metadata.PackageNotFoundError):
        versions.append(metadata.version("pillow-heif"))
    return tuple(versions)
