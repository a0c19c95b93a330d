"""Reads the headers of PNG and JPEG images: the shape that TensorFlow decodes them to, what has to change.

No pixel is decoded. `inspect_image` checks as well that an image is complete: of a PNG every chunk and its
checksum are read; of a JPEG the segments up to the first scan, and the end marker, which the compressed data
itself cannot contain. `inspect_head` reads the beginning of a file alone.

- Recognizes images of all formats by their content, and opens them: PNG, JPEG, what Pillow reads besides.

  TensorFlow reads PNG and JPEG; images of the other formats are converted. A file's name says nothing:
  scrapers and colleagues give wrong ones.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import PIL

from tpuctl.data.images.profiles import changes_colours

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile


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
_MARKUP = (
    (b"<svg", "an SVG drawing, which has no pixels"),
    (b"<html", "an HTML page, not an image"),
    (b"<!doctype html", "an HTML page, not an image"),
)
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
