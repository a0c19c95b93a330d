"""The picture that all odd files show, and the libraries that write it."""

from __future__ import annotations

import io
import struct
from functools import cache

from PIL import Image, ImageCms

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
