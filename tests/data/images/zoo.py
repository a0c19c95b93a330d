"""Odd files that a camera, a phone, a scraper and a colleague leave behind, and the picture they show."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pillow_heif
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from tests.data.images.bombs import blank_png

SIZE = (48, 32)
RED, GREEN, BLUE = (200, 40, 40), (40, 180, 60), (40, 60, 200)
WHITE = (255, 255, 255)


def clear_index() -> int:
    """Return the index of green in the palette of the picture."""
    index = of_mode("P").getpixel((40, 6))
    assert isinstance(index, int)
    return index


@cache
def picture(size: tuple[int, int] = SIZE) -> Image.Image:
    """Return a picture whose top left is red, top right green, and bottom blue."""
    image = Image.new("RGB", size, BLUE)
    image.paste(RED, (0, 0, size[0] // 2, size[1] // 2))
    image.paste(GREEN, (size[0] // 2, 0, size[0], size[1] // 2))
    return image


def of_mode(mode: str) -> Image.Image:
    """Return it in a mode of Pillow; with transparency its right half is clear."""
    if mode in ("RGBA", "LA"):
        image = picture().convert(mode)
        image.putalpha(Image.new("L", SIZE))
        image.paste(picture().convert(mode).crop((0, 0, SIZE[0] // 2, SIZE[1])))
        return image
    if mode == "P":
        return picture().quantize(3, dither=Image.Dither.NONE)
    if mode == "1":
        return picture().convert("L").point([255 * (value > 100) for value in range(256)], "1")
    if mode.startswith("I;16"):
        grey = picture().convert("L").tobytes()
        order = ">" if mode == "I;16B" else "<"
        wide = struct.pack(f"{order}{len(grey)}H", *(value * 257 for value in grey))
        return Image.frombytes(mode, SIZE, wide)
    if mode == "LAB":
        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        converted = ImageCms.profileToProfile(picture(), *profiles, outputMode="LAB")
        assert converted
        return converted
    return picture().convert(mode)


def save(image: Image.Image, encoding: str, **options: object) -> bytes:
    """Return a picture as Pillow writes it."""
    stream = io.BytesIO()
    image.save(stream, encoding, **options)
    return stream.getvalue()


def exif(orientation: int | bytes, order: str = "<") -> bytes:
    """Return EXIF data with an orientation, in one byte order or the other; or with a text in its place."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    if isinstance(orientation, bytes):
        entry = struct.pack(f"{order}HHI4s", 0x0112, 2, len(orientation) + 1, orientation)
    else:
        entry = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + mark + struct.pack(f"{order}IH", 8, 1) + entry + bytes(4)


def stored(orientation: int) -> Image.Image:
    """Return the picture as a camera that was held so stores it."""
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    return picture().transpose(turns[orientation]) if orientation in turns else picture()


PRIMARIES = {
    "Adobe RGB": ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446)),
    "Display P3": ((0.5151, 0.2412, -0.0011), (0.2919, 0.6922, 0.0419), (0.1571, 0.0666, 0.7841)),
}
"""The colorants of two profiles that cameras and phones embed, adapted to D50."""


def profile(name: str = "sRGB") -> bytes:
    """Return a colour profile: that of LittleCMS for sRGB, with other primaries for the others."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    (count,) = struct.unpack_from(">I", data, 128)
    tags = {struct.unpack_from(">4s", data, 132 + 12 * n)[0]: 132 + 12 * n for n in range(count)}
    for tag, colour in zip((b"rXYZ", b"gXYZ", b"bXYZ"), PRIMARIES.get(name, ()), strict=False):
        (start,) = struct.unpack_from(">I", data, tags[tag] + 4)
        struct.pack_into(">3i", data, start + 8, *(round(value * 65536) for value in colour))
    return bytes(data)


def long_profile(name: str) -> bytes:
    """Return a profile of more than one segment of a JPEG."""
    data = bytearray(profile(name)) + bytes(100_000)
    struct.pack_into(">I", data, 0, len(data))
    return bytes(data)


def png_of(rows: bytes, depth: int, colour: int, size: tuple[int, int] = SIZE, interlaced: int = 0) -> bytes:
    """Return a PNG of rows as the format has them, for what Pillow does not write."""
    import zlib

    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    import zlib

    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def wide_rows(channels: int) -> bytes:
    """Return the rows of a PNG with 16 bits a channel."""
    pixels = picture().convert("L" if channels == 1 else "RGB").tobytes()
    width = SIZE[0] * channels
    rows = (pixels[start : start + width] for start in range(0, len(pixels), width))
    return b"".join(b"\0" + struct.pack(f">{width}H", *(value * 257 for value in row)) for row in rows)


def tiff_of_16_bits() -> bytes:
    """Return a TIFF with 16 bits for each of three channels, as scanners write it."""
    pixels = struct.pack(f"<{3 * SIZE[0] * SIZE[1]}H", *(value * 257 for value in picture().tobytes()))
    entries = (
        (256, 3, 1, SIZE[0]), (257, 3, 1, SIZE[1]), (258, 3, 3, 8 + len(pixels)), (259, 3, 1, 1),
        (262, 3, 1, 2), (273, 4, 1, 8), (277, 3, 1, 3), (278, 3, 1, SIZE[1]), (279, 4, 1, len(pixels)),
    )  # fmt: skip
    bits = struct.pack("<3H", 16, 16, 16)
    folder = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHI", tag, kind, count) + struct.pack("<I", value)
        for tag, kind, count, value in entries
    )
    start = 8 + len(pixels) + len(bits)
    return b"II*\0" + struct.pack("<I", start) + pixels + bits + folder + bytes(4)


Colours = tuple[tuple[int, ...], ...]
PLACES = ((6, 6), (40, 6), (6, 25))
"""At the top left, the top right, and the bottom left."""
CLEAR: Colours = (RED, WHITE, BLUE)
GREYS: Colours = ((88,) * 3, (124,) * 3, (70,) * 3)
CLEAR_GREYS: Colours = (GREYS[0], WHITE, GREYS[2])
BITS: Colours = ((0,) * 3, WHITE, (0,) * 3)


class OddFile(NamedTuple):
    """A file, and what becomes of it in a dataset of RGB."""

    make: Callable[[], bytes]
    why: str = ""
    """Why it is converted; `bad: ` and why it is bad; empty where its bytes stay as they are."""
    colours: Colours | None = (RED, GREEN, BLUE)
    """At `PLACES`; None where it shows no picture, or other colours by intention."""


TURNED, TO_3, TO_8, TO_SRGB = "turned upright (EXIF)", "to 3 channels", "to 8 bits", "to sRGB"
FIRST = "the first frame of several"


def jpeg(image: Image.Image | None = None, **options: object) -> bytes:
    """Return a JPEG."""
    return save(image or picture(), "JPEG", **{"quality": 95, "subsampling": "4:4:4", **options})


def png(image: Image.Image | None = None, **options: object) -> bytes:
    """Return a PNG."""
    return save(image or picture(), "PNG", **options)


def frames(encoding: str, **options: object) -> bytes:
    """Return a file with the picture and another one after it."""
    other = picture().transpose(Image.Transpose.ROTATE_180)
    return save(picture(), encoding, save_all=True, append_images=[other], **options)


def heic(image: Image.Image | None = None, **options: object) -> bytes:
    """Return a HEIC file as pillow-heif writes it."""
    stream = io.BytesIO()
    pillow_heif.from_pillow(image or picture()).save(stream, quality=95, chroma=444, **options)
    return stream.getvalue()


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return data with its first `old` replaced."""
    assert old in data
    return data.replace(old, new, 1)


def without_adobe(data: bytes) -> bytes:
    """Return a JPEG without the segment of Adobe, which says that its inks are inverted."""
    start = data.index(b"\xff\xee")
    (size,) = struct.unpack_from(">H", data, start + 2)
    return data[:start] + data[start + 2 + size :]


def with_exif(data: bytes, segment: bytes) -> bytes:
    """Return a JPEG with a segment of EXIF data before all others."""
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:]


def broken_png() -> bytes:
    """Return a PNG with a flipped bit in its pixels."""
    data = bytearray(png())
    data[data.index(b"IDAT") + 8] ^= 1
    return bytes(data)


def png_notes(kind: bytes, data: bytes) -> PngInfo:
    """Return a chunk for Pillow to write."""
    notes = PngInfo()
    notes.add(kind, data)
    return notes


JPEGS = {
    "photograph.jpg": OddFile(jpeg),
    "grey.jpg": OddFile(lambda: jpeg(of_mode("L")), TO_3, GREYS),
    "progressive.jpg": OddFile(lambda: jpeg(progressive=True)),
    "chroma-420.jpg": OddFile(lambda: jpeg(subsampling="4:2:0", optimize=True)),
    "restarts.jpg": OddFile(lambda: jpeg(restart_marker_rows=1)),
    "comment.jpg": OddFile(lambda: jpeg(comment="x" * 60_000)),
    "cmyk.jpg": OddFile(lambda: jpeg(of_mode("CMYK"), subsampling=0), "from CMYK"),
    "cmyk-plain.jpg": OddFile(lambda: without_adobe(jpeg(of_mode("CMYK"), subsampling=0)), "from CMYK", None),
    "ycck.jpg": OddFile(
        lambda: patched(jpeg(of_mode("CMYK"), subsampling=0), b"Adobe\0d\0\0\0\0\0", b"Adobe\0d\0\0\0\0\2"),
        "from CMYK",
        None,
    ),
    **{
        f"orientation-{n}.jpg": OddFile(lambda n=n: jpeg(stored(n), exif=exif(n)), TURNED)  # type: ignore[misc]
        for n in range(2, 9)
    },
    "orientation-1.jpg": OddFile(lambda: jpeg(exif=exif(1))),
    "orientation-9.jpg": OddFile(lambda: jpeg(exif=exif(9))),
    "orientation-9-grey.jpg": OddFile(lambda: jpeg(of_mode("L"), exif=exif(9)), TO_3, GREYS),
    "orientation-0-grey.jpg": OddFile(lambda: jpeg(of_mode("L"), exif=exif(0)), TO_3, GREYS),
    "orientation-text-grey.jpg": OddFile(lambda: jpeg(of_mode("L"), exif=exif(b"6")), TO_3, GREYS),
    "orientation-motorola.jpg": OddFile(lambda: jpeg(stored(6), exif=exif(6, ">")), TURNED),
    "exif-cut.jpg": OddFile(lambda: with_exif(jpeg(), exif(6)[:12])),
    "exif-thumbnail.jpg": OddFile(lambda: with_exif(jpeg(stored(8)), exif(8) + bytes(60_000)), TURNED),
    "grey-lying.jpg": OddFile(lambda: jpeg(stored(6).convert("L"), exif=exif(6)), f"{TURNED}, {TO_3}", GREYS),
    "adobe-rgb.jpg": OddFile(lambda: jpeg(icc_profile=profile("Adobe RGB")), TO_SRGB, None),
    "display-p3.jpg": OddFile(lambda: jpeg(icc_profile=profile("Display P3")), TO_SRGB, None),
    "profile-long.jpg": OddFile(lambda: jpeg(icc_profile=long_profile("Adobe RGB")), TO_SRGB, None),
    "profile-srgb.jpg": OddFile(lambda: jpeg(icc_profile=profile())),
    "profile-damaged.jpg": OddFile(lambda: jpeg(icc_profile=b"no profile at all")),
    "two-lenses.jpg": OddFile(lambda: frames("MPO")),
    "garbage-behind.jpg": OddFile(lambda: jpeg() + b"uploaded by somebody" * 50),
    "padded.jpg": OddFile(lambda: jpeg() + bytes(5_000)),
    "wide.jpg": OddFile(lambda: jpeg(Image.new("RGB", (65_500, 1))), "", None),
    "png-inside.jpg": OddFile(png),
    "webp-inside.jpg": OddFile(lambda: save(picture(), "WEBP", quality=95), "from WebP"),
    "heic-inside.jpg": OddFile(heic, "from HEIC"),
    "truncated.jpg": OddFile(lambda: jpeg()[:-30], "bad: cannot be decoded (it ends before its last marker)"),
    "truncated-head.jpg": OddFile(lambda: jpeg()[:200], "bad: cannot be decoded (it ends in the middle)"),
    "empty.jpg": OddFile(bytes, "bad: is empty"),
    "twelve-bits.jpg": OddFile(
        lambda: patched(jpeg(), b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c"),
        "bad: cannot be decoded (it has 12 bits a pixel and channel, expected 8)",
    ),
    "arithmetic.jpg": OddFile(
        lambda: patched(jpeg(), b"\xff\xc0", b"\xff\xc9"),
        "bad: cannot be decoded (its kind of compression is not supported)",
    ),
    "no-height.jpg": OddFile(
        lambda: patched(jpeg(), b"\x08\0\x20\0\x30", b"\x08\0\0\0\x30"),
        "bad: cannot be decoded (its header is damaged)",
    ),
    "error-page.jpg": OddFile(
        lambda: b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "bad: is an HTML page, not an image",
    ),
    "notes.jpg": OddFile(
        lambda: "заметки\n".encode("ascii", "backslashreplace"), "bad: is a text, not an image"
    ),
    "noise.jpg": OddFile(lambda: bytes(range(256)) * 9, "bad: is not an image, or of an unknown format"),
}
PNGS = {
    "drawing.png": OddFile(png),
    "grey.png": OddFile(lambda: png(of_mode("L")), TO_3, GREYS),
    "clear.png": OddFile(lambda: png(of_mode("RGBA")), TO_3, CLEAR),
    "clear-grey.png": OddFile(lambda: png(of_mode("LA")), TO_3, CLEAR_GREYS),
    "palette.png": OddFile(lambda: png(of_mode("P"))),
    "palette-clear.png": OddFile(lambda: png(of_mode("P"), transparency=clear_index()), TO_3, CLEAR),
    "clear-colour.png": OddFile(lambda: png(transparency=(1, 2, 3))),
    "one-bit.png": OddFile(lambda: png(of_mode("1")), TO_3, BITS),
    "sixteen-bits-grey.png": OddFile(lambda: png(of_mode("I;16")), f"{TO_3}, {TO_8}", GREYS),
    "sixteen-bits.png": OddFile(lambda: png_of(wide_rows(3), 16, 2)),
    "interlaced.png": OddFile(lambda: png_of(b"\0\1\2\3", 8, 2, (1, 1), 1), "", None),
    "animated.png": OddFile(lambda: frames("PNG")),
    "lying.png": OddFile(lambda: png(stored(6), exif=exif(6)), TURNED),
    "adobe-rgb.png": OddFile(lambda: png(icc_profile=profile("Adobe RGB")), TO_SRGB, None),
    "gamma.png": OddFile(lambda: png(pnginfo=png_notes(b"gAMA", struct.pack(">I", 45_455)))),
    "garbage-behind.png": OddFile(lambda: png() + bytes(20_000)),
    "jpeg-inside.png": OddFile(jpeg),
    "text-chunk.png": OddFile(lambda: png(pnginfo=png_notes(b"tEXt", b"Comment\0" + b"x" * 9_000))),
    "flipped-bit.png": OddFile(
        broken_png, "bad: cannot be decoded (the checksum of its IDAT chunk does not match)"
    ),
    "truncated.png": OddFile(lambda: png()[:-20], "bad: cannot be decoded (it ends in the middle)"),
    "head-only.png": OddFile(
        lambda: png()[:33] + chunk(b"IEND", b""), "bad: cannot be decoded (it has no pixels)"
    ),
    "no-width.png": OddFile(
        lambda: png_of(b"", 8, 2, (0, 32)), "bad: cannot be decoded (its header is damaged)"
    ),
    "bomb.png": OddFile(
        lambda: blank_png(30_000, 30_000, depth=1, colour=0),
        "bad: has 30000 × 30000 pixels, more than TensorFlow decodes",
    ),
    "bomb-grey.png": OddFile(
        lambda: blank_png(12_000, 12_000, depth=1, colour=0),
        "bad: has 12000 × 12000 pixels, and at most 134 megapixels are decoded",
    ),
}
OTHERS = {
    "still.gif": OddFile(lambda: save(picture(), "GIF"), "from GIF"),
    "animated.gif": OddFile(lambda: frames("GIF"), f"from GIF, {FIRST}"),
    "clear.gif": OddFile(
        lambda: save(of_mode("P"), "GIF", transparency=clear_index()), f"from GIF, {TO_3}", CLEAR
    ),
    "grey.gif": OddFile(lambda: save(of_mode("L"), "GIF"), "from GIF", GREYS),
    "truncated.gif": OddFile(lambda: save(picture(), "GIF")[:9], "bad: cannot be decoded"),
    "lossy.webp": OddFile(lambda: save(picture(), "WEBP", quality=95), "from WebP"),
    "lossless.webp": OddFile(lambda: save(picture(), "WEBP", lossless=True), "from WebP"),
    "clear.webp": OddFile(lambda: save(of_mode("RGBA"), "WEBP", quality=95), f"from WebP, {TO_3}", CLEAR),
    "animated.webp": OddFile(lambda: frames("WEBP", quality=95), f"from WebP, {FIRST}"),
    "lying.webp": OddFile(lambda: save(stored(6), "WEBP", quality=95, exif=exif(6)), f"from WebP, {TURNED}"),
    "display-p3.webp": OddFile(
        lambda: save(picture(), "WEBP", quality=95, icc_profile=profile("Display P3")),
        f"from WebP, {TO_SRGB}",
        None,
    ),
    "truncated.webp": OddFile(lambda: save(picture(), "WEBP")[:40], "bad: cannot be decoded"),
    "paint.bmp": OddFile(lambda: save(picture(), "BMP"), "from BMP"),
    "palette.bmp": OddFile(lambda: save(of_mode("P"), "BMP"), "from BMP"),
    "one-bit.bmp": OddFile(lambda: save(of_mode("1"), "BMP"), f"from BMP, {TO_3}", BITS),
    "scan.tif": OddFile(lambda: save(picture(), "TIFF"), "from TIFF"),
    "lzw.tif": OddFile(lambda: save(picture(), "TIFF", compression="tiff_lzw"), "from TIFF"),
    "jpeg.tif": OddFile(lambda: save(picture(), "TIFF", compression="jpeg", quality=95), "from TIFF"),
    "fax.tif": OddFile(lambda: save(of_mode("1"), "TIFF", compression="group4"), f"from TIFF, {TO_3}", BITS),
    "pages.tif": OddFile(lambda: frames("TIFF"), f"from TIFF, {FIRST}"),
    "clear.tif": OddFile(lambda: save(of_mode("RGBA"), "TIFF"), f"from TIFF, {TO_3}", CLEAR),
    "cmyk.tif": OddFile(lambda: save(of_mode("CMYK"), "TIFF"), "from TIFF, from CMYK"),
    "lab.tif": OddFile(lambda: save(of_mode("LAB"), "TIFF"), "from TIFF"),
    "ycbcr.tif": OddFile(lambda: save(of_mode("YCbCr"), "TIFF"), "from TIFF"),
    "sixteen-bits-grey.tif": OddFile(
        lambda: save(of_mode("I;16"), "TIFF"), f"from TIFF, {TO_3}, {TO_8}", GREYS
    ),
    "sixteen-bits.tif": OddFile(tiff_of_16_bits, "from TIFF"),
    "lying.tif": OddFile(lambda: save(stored(6), "TIFF", exif=exif(6)[6:]), f"from TIFF, {TURNED}"),
    "floats.tif": OddFile(
        lambda: save(of_mode("F"), "TIFF"), "bad: has pixels of the kind F, expected 8 or 16 bits a channel"
    ),
    "thumbnail-first.dng": OddFile(
        lambda: save(picture(), "TIFF", tiffinfo={254: 1}),
        "bad: is a raw photograph, whose first image is a thumbnail",
    ),
    "truncated.tif": OddFile(lambda: save(picture(), "TIFF")[:60], "bad: cannot be decoded"),
    "archive.jp2": OddFile(lambda: save(picture(), "JPEG2000"), "from JPEG 2000"),
    "stream.j2k": OddFile(lambda: save(picture(), "JPEG2000", no_jp2=True), "from JPEG 2000"),
    "phone.avif": OddFile(lambda: save(picture(), "AVIF", quality=95), "from AVIF"),
    "clear.avif": OddFile(lambda: save(of_mode("RGBA"), "AVIF", quality=95), f"from AVIF, {TO_3}", CLEAR),
    "phone.heic": OddFile(heic, "from HEIC"),
    "clear.heic": OddFile(lambda: heic(of_mode("RGBA")), f"from HEIC, {TO_3}", CLEAR),
    "film.jpg": OddFile(lambda: b"\0\0\0\x18ftypisom" + bytes(40), "bad: is a video, not an image"),
    "logo.svg": OddFile(
        lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>', "bad: is an SVG drawing, which has no pixels"
    ),
    "layers.psd": OddFile(lambda: b"8BPS\0\1" + bytes(40), "bad: is a Photoshop document"),
    "paper.pdf": OddFile(lambda: save(picture(), "PDF"), "bad: is a PDF document"),
    "favicon.ico": OddFile(lambda: save(picture(), "ICO"), "bad: is an icon (ICO)"),
    "next.jxl": OddFile(lambda: b"\xff\x0a" + bytes(40), "bad: is a JPEG XL image"),
    "picture.png.gz": OddFile(lambda: gzip.compress(png()), "bad: is a gzip file"),
}
ZOO = {**JPEGS, **PNGS, **OTHERS}
"""By the name of the file."""
LITTER = (".DS_Store", "._photograph.jpg", "Thumbs.db", "desktop.ini", "__MACOSX/._photograph.jpg")
"""Names that systems leave in folders: they are no pictures, and nothing is said of them."""


def usable_names() -> list[str]:
    """Return the names of the files that are kept or converted."""
    return [name for name, odd in ZOO.items() if not odd.why.startswith("bad")]
