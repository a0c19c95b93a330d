"""What the headers of PNG and JPEG files say, byte by byte: files made by hand, no library of pictures.

Which format a file is of, by its beginning, whatever its name; and what else it may be.
"""

from __future__ import annotations

import struct
import zlib
from types import SimpleNamespace

import pytest
from PIL import Image

from tests.data.images.zoo import (
    chunk,
    clear_index,
    exif,
    frames,
    heic,
    of_mode,
    picture,
    profile,
    save,
    stored,
)
from tpuctl.data.images import header
from tpuctl.data.images.header import (
    HeadTooShort,
    ImageInfo,
    InvalidImage,
    format_name,
    inspect_head,
    inspect_image,
    look,
)

MAGIC = b"\x89PNG\r\n\x1a\n"
PIXELS = chunk(b"IDAT", zlib.compress(b"\0\1"))
LAST = chunk(b"IEND", b"")
MOST = 1 << 29
"""Height times width times channels that TensorFlow decodes, at most."""


def ihdr(width: int = 3, height: int = 2, depth: int = 8, colour: int = 2) -> bytes:
    """Return the first chunk of a PNG (PNG specification, 11.2.1)."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def png(*between: bytes, head: bytes = ihdr(), pixels: bytes = PIXELS, last: bytes = LAST) -> bytes:
    """Return a PNG with chunks before its pixels."""
    return b"".join((MAGIC, head, *between, pixels, last))


def segment(marker: int, content: bytes) -> bytes:
    """Return a segment of a JPEG: its marker, its length with the two bytes of that, its content."""
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def sof(
    components: int = 3, width: int = 3, height: int = 2, precision: int = 8, marker: int = 0xC0
) -> bytes:
    """Return the segment that says how large a picture is (ITU-T T.81, B.2.2)."""
    return segment(marker, struct.pack(">BHHB", precision, height, width, components) + bytes(3 * components))


SCAN = segment(0xDA, bytes(6)) + b"\x12\x34"


def jpeg(*between: bytes, frame: bytes = sof(), scan: bytes = SCAN, last: bytes = b"\xff\xd9") -> bytes:
    """Return a JPEG with segments before its frame."""
    return b"".join((b"\xff\xd8", *between, frame, scan, last))


def why(data: bytes) -> str:
    """Return why a file is no image."""
    with pytest.raises(InvalidImage) as refused:
        inspect_image(data)
    return str(refused.value)


@pytest.mark.parametrize(
    ("depth", "colour", "channels", "dtype"),
    [
        (1, 0, 1, "uint8"),
        (8, 0, 1, "uint8"),
        (16, 0, 1, "uint16"),
        (8, 2, 3, "uint8"),
        (16, 2, 3, "uint8"),
        (8, 3, 3, "uint8"),
        (8, 4, 2, "uint8"),
        (16, 4, 2, "uint8"),
        (8, 6, 4, "uint8"),
    ],
)
def test_the_channels_of_a_png_are_those_of_its_colour_type(
    depth: int, colour: int, channels: int, dtype: str
) -> None:
    data = png(head=ihdr(depth=depth, colour=colour))
    assert inspect_image(data) == inspect_head(data) == ImageInfo(2, 3, channels, dtype, "png")


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (3, 4)])
def test_transparency_of_single_colours_is_a_channel_of_a_palette_alone(colour: int, channels: int) -> None:
    assert inspect_image(png(chunk(b"tRNS", b"\0\0"), head=ihdr(colour=colour))).channels == channels


@pytest.mark.parametrize(
    "data",
    [
        png(head=ihdr(colour=1)),
        png(head=ihdr(colour=5)),
        png(head=ihdr(colour=7)),
        png(head=ihdr(width=0)),
        png(head=ihdr(height=0)),
        png(head=b""),
        png(head=chunk(b"IHDR", bytes(12))),
        png(head=chunk(b"IHDR", bytes(14))),
        png(head=chunk(b"iHDR", struct.pack(">IIBBBBB", 3, 2, 8, 2, 0, 0, 0))),
        jpeg(frame=b""),
        jpeg(frame=sof(components=2)),
        jpeg(frame=sof(width=0)),
        jpeg(frame=sof(height=0)),
        jpeg(segment(0xFE, b"a comment"), b"\0"),
    ],
)
def test_a_damaged_header_is_named(data: bytes) -> None:
    assert why(data) == "cannot be decoded (its header is damaged)"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"\x89PN", "is not a PNG or JPEG image"),
        (b"\xff\xd8", "is not a PNG or JPEG image"),
        (png(pixels=b""), "cannot be decoded (it has no pixels)"),
        (png(pixels=chunk(b"IDAT", b"")), "cannot be decoded (it has no pixels)"),
        (jpeg(frame=b"", scan=b""), "cannot be decoded (it has no pixels)"),
        (jpeg(scan=b""), "cannot be decoded (it has no pixels)"),
        (jpeg(last=b""), "cannot be decoded (it ends before its last marker)"),
        (jpeg(last=b"\xff"), "cannot be decoded (it ends before its last marker)"),
        (
            jpeg(segment(0xFE, b"\xff\xd9"), last=b""),
            "cannot be decoded (it ends before its last marker)",
        ),
        (jpeg(frame=sof(precision=12)), "cannot be decoded (it has 12 bits a pixel and channel, expected 8)"),
        (jpeg(frame=sof(precision=7)), "cannot be decoded (it has 7 bits a pixel and channel, expected 8)"),
    ],
)
def test_what_is_no_whole_image_says_why(data: bytes, reason: str) -> None:
    assert why(data) == reason


@pytest.mark.parametrize("kind", [b"IHDR", b"tEXt", b"IDAT", b"IEND"])
def test_the_checksum_of_each_chunk_of_a_png_counts(kind: bytes) -> None:
    data = bytearray(png(chunk(b"tEXt", b"Comment\0x")))
    (size,) = struct.unpack_from(">I", data, data.index(kind) - 4)
    data[data.index(kind) + 4 + size] ^= 1
    expected = f"cannot be decoded (the checksum of its {kind.decode()} chunk does not match)"
    assert why(bytes(data)) == expected


def test_the_pixels_of_a_png_may_be_in_several_chunks_the_last_one_empty() -> None:
    assert inspect_image(png(pixels=PIXELS + chunk(b"IDAT", b""))).pixels == (3, "uint8")


@pytest.mark.parametrize(
    ("data", "needed"),
    [
        (png(chunk(b"tEXt", b"Comment\0x")), 8 + 25 + 21 + 8),
        (png(chunk(b"eXIf", exif(6)[6:])), 8 + 25 + 12 + 26 + 8),
        (jpeg(segment(0xFE, b"a comment")), 2 + 13 + 19 + 4),
        (jpeg(segment(0xE1, exif(6))), 2 + 4 + 32 + 19 + 4),
        (jpeg(segment(0xE2, b"ICC_PROFILE\0\1\1abc")), 2 + 4 + 17 + 19 + 4),
    ],
)
def test_a_head_is_enough_up_to_the_beginning_of_the_pixels(data: bytes, needed: int) -> None:
    for size in range(4, needed):
        with pytest.raises(HeadTooShort):
            inspect_head(data[:size])
    assert inspect_head(data[:needed]) == inspect_image(data)


@pytest.mark.parametrize("data", [png(), jpeg()])
def test_no_beginning_of_an_image_is_a_whole_one(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(InvalidImage):
            inspect_image(data[:size])
    assert inspect_image(data + b"what follows") == inspect_image(data)


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        (ihdr(1 << 14, 1 << 13, colour=6), ihdr((1 << 14) + 1, 1 << 13, colour=6)),
        (ihdr(1 << 15, 1 << 14, colour=0), ihdr(1 << 15, (1 << 14) + 1, colour=0)),
        (ihdr(MOST, 1, colour=0), ihdr(MOST + 1, 1, colour=0)),
    ],
)
def test_the_largest_image_is_the_largest_that_tensorflow_decodes(largest: bytes, larger: bytes) -> None:
    info = inspect_head(png(head=largest))
    assert info.width * info.height * info.channels == MOST
    with pytest.raises(InvalidImage) as refused:
        inspect_head(png(head=larger))
    width, height = struct.unpack_from(">II", larger, 8)
    assert str(refused.value) == f"has {width} × {height} pixels, more than TensorFlow decodes"
    assert refused.value.group == "has more pixels than TensorFlow decodes"


@pytest.mark.parametrize(("components", "channels"), [(1, 1), (3, 3), (4, 3)])
@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2])
def test_the_channels_of_a_jpeg_are_those_of_its_frame(marker: int, components: int, channels: int) -> None:
    data = jpeg(frame=sof(components, width=300, height=513, marker=marker))
    changes = ("from CMYK",) if components == 4 else ()
    expected = ImageInfo(513, 300, channels, "uint8", "jpeg", changes)
    assert inspect_image(data) == inspect_head(data) == expected


@pytest.mark.parametrize("marker", sorted({*range(0xC3, 0xD0)} - {0xC4, 0xC8, 0xCC}))
def test_frames_that_libjpeg_does_not_decode_are_refused(marker: int) -> None:
    assert why(jpeg(frame=sof(marker=marker))) == (
        "cannot be decoded (its kind of compression is not supported)"
    )


@pytest.mark.parametrize("marker", [0xC4, 0xC8, 0xCC, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xEE, 0xFE])
def test_other_segments_are_passed_over_whatever_is_in_them(marker: int) -> None:
    filled = segment(marker, b"\xff\xc9\xff\xd9" + bytes(300))
    assert inspect_image(jpeg(filled)) == inspect_image(jpeg())


@pytest.mark.parametrize("alone", [b"\xff\x01", *(bytes((0xFF, marker)) for marker in range(0xD0, 0xD8))])
def test_markers_without_a_length_and_padding_are_passed_over(alone: bytes) -> None:
    assert inspect_image(jpeg(alone, b"\xff", alone, b"\xff\xff")) == inspect_image(jpeg())


@pytest.mark.parametrize(("orientation", "changes"), [(1, ()), (2, ("turned upright (EXIF)",)), (9, ())])
def test_a_picture_that_lies_is_turned_once(orientation: int, changes: tuple[str, ...]) -> None:
    notes = exif(orientation)
    assert inspect_image(png(chunk(b"eXIf", notes[6:]))).changes == changes
    assert inspect_image(jpeg(segment(0xE1, notes))).changes == changes
    assert inspect_image(jpeg(segment(0xE1, notes), segment(0xE1, notes))).changes == changes
    assert inspect_image(jpeg(segment(0xE2, notes))).changes == ()
    assert inspect_image(png(chunk(b"tEXt", notes[6:]))).changes == ()


def of_profile(content: bytes) -> bytes:
    """Return the chunk of a PNG with a colour profile."""
    return chunk(b"iCCP", b"a name\0\0" + zlib.compress(content))


def parts(content: bytes, size: int) -> list[bytes]:
    """Return the segments of a JPEG with a colour profile."""
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return [
        segment(0xE2, b"ICC_PROFILE\0" + bytes((number, len(pieces))) + piece)
        for number, piece in enumerate(pieces, 1)
    ]


@pytest.mark.parametrize(
    ("content", "changes"),
    [(profile(), ()), (profile("Adobe RGB"), ("to sRGB",)), (b"no profile at all", ())],
)
def test_a_profile_of_other_colours_is_a_change(content: bytes, changes: tuple[str, ...]) -> None:
    assert inspect_image(png(of_profile(content))).changes == changes
    assert inspect_image(jpeg(*parts(content, 60_000))).changes == changes
    assert inspect_image(jpeg(*parts(content, 100))).changes == changes
    assert inspect_image(jpeg(*parts(content, 100), frame=sof(components=1))).changes == ()
    if changes:
        turned = (*changes, "turned upright (EXIF)")
        assert inspect_image(png(of_profile(content), chunk(b"eXIf", exif(6)[6:]))).changes == turned
        assert inspect_image(jpeg(*parts(content, 100), segment(0xE1, exif(6)))).changes == turned[::-1]
        cmyk = jpeg(segment(0xE1, exif(6)), frame=sof(components=4))
        assert inspect_image(cmyk).changes == ("from CMYK", "turned upright (EXIF)")


def test_four_megabytes_of_a_profile_are_unpacked_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Unpacker:
        def decompress(self, content: bytes, most: int) -> bytes:
            asked.append(most)
            return zlib.decompressobj().decompress(content, most)

    played = SimpleNamespace(decompressobj=Unpacker, crc32=zlib.crc32, error=zlib.error)
    monkeypatch.setattr(header, "zlib", played)
    assert inspect_image(png(of_profile(bytes(5_000_000)))).changes == ()
    assert asked == [4 * 1024 * 1024]


@pytest.mark.parametrize(
    "content",
    [
        b"a name without an end",
        b"name\0\0no zlib",
        b"name\0\0" + zlib.compress(b" " * 16 + b"CMYK" + bytes(99)),
    ],
)
def test_a_profile_of_a_png_that_says_nothing_of_its_colours_is_passed_over(content: bytes) -> None:
    assert inspect_image(png(chunk(b"iCCP", content))).changes == ()


def test_a_jpeg_has_so_many_segments_at_most() -> None:
    """Pillow joins those of a kind one by one: a megabyte of them takes it minutes."""
    few = [segment(0xE2, b"ICC_PROFILE\0\1\1x")] * (header._MOST_SEGMENTS - 3)
    assert inspect_image(jpeg(*few)).encoding == "jpeg"
    assert why(jpeg(*few, *few)) == "cannot be decoded (its header has more than 4096 segments)"


def test_only_the_first_profile_of_a_png_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[bytes] = []
    monkeypatch.setattr(header, "_png_colours", lambda content: unpacked.append(content) or False)
    inspect_image(png(*[chunk(b"iCCP", b"p\0\0x")] * 3))
    assert len(unpacked) == 1


def boxes(brands: bytes, size: int | None = None) -> bytes:
    """Return the first box of a file (ISO 14496-12, 4.3), and bytes that follow."""
    length = 8 + len(brands) if size is None else size
    return length.to_bytes(4, "big") + b"ftyp" + brands + b"avifheic"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x89PNG", "png"),
        (b"\xff\xd8\xff", "jpeg"),
        (b"GIF87a", "GIF"),
        (b"GIF89a", "GIF"),
        (b"BM", "BMP"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"II+\0", "TIFF"),
        (b"MM\0+", "TIFF"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\xff\x4f\xff\x51\0", "JPEG 2000"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "WebP"),
        (boxes(b"avif\0\0\0\0mif1miaf"), "AVIF"),
        (boxes(b"avis\0\0\0\0msf1"), "AVIF"),
        (boxes(b"mif1\0\0\0\0avif"), "AVIF"),
        *((boxes(brand + b"\0\0\0\0"), "HEIC") for brand in (b"heic", b"heix", b"hevc", b"hevx")),
        *((boxes(brand + b"\0\0\0\0"), "HEIC") for brand in (b"heim", b"heis", b"mif1", b"msf1")),
        (boxes(b"isom".ljust(244, b"\0") + b"heic"), "HEIC"),
    ],
)
def test_a_format_is_told_by_how_a_file_begins(head: bytes, name: str) -> None:
    assert format_name(head) == name


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"", "is empty"),
        (boxes(b"isom\0\0\2\0isomiso2avc1mp41"), "is a video, not an image"),
        (boxes(b"isom".ljust(248, b"\0") + b"heic", 256), "is a video, not an image"),
        (boxes(b"isom".ljust(248, b"\0") + b"heic", 4096), "is a video, not an image"),
        (b"8BPS\0\1", "is a Photoshop document"),
        (b"%PDF-1.7", "is a PDF document"),
        (b"\0\0\1\0\1\0", "is an icon (ICO)"),
        (b"\xff\x0a\xfa", "is a JPEG XL image"),
        (b"\0\0\0\x0cJXL \r\n", "is a JPEG XL image"),
        (b"PK\3\4", "is a zip archive"),
        (b"\x1f\x8b\x08", "is a gzip file"),
        (b"<svg/>", "is an SVG drawing, which has no pixels"),
        (b'\n <?xml version="1.0"?>\n<!-- x -->\n<SVG/>', "is an SVG drawing, which has no pixels"),
        (b"<html>", "is an HTML page, not an image"),
        (b"\r\n<!DOCTYPE HTML>", "is an HTML page, not an image"),
        (b"<!-- a comment -->" + b" " * 1002 + b"<html>", "is a text, not an image"),
        (b"<!-- a comment -->" + b" " * 1003 + b"<svg ", "is a text, not an image"),
        (b"a text that names <svg> and <html>", "is a text, not an image"),
        (b"\t\r\n\f ~", "is a text, not an image"),
        ("größe".encode("latin-1"), "is a text, not an image"),
        (b"text\x1f", "is not an image, or of an unknown format"),
        (b"text\x0b", "is not an image, or of an unknown format"),
        (b"x" * 1024 + b"\0", "is a text, not an image"),
        (b"x" * 1023 + b"\0", "is not an image, or of an unknown format"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "is not an image, or of an unknown format"),
        (b"RIFX\x24\0\0\0WEBPVP8 ", "is not an image, or of an unknown format"),
    ],
)
def test_what_is_no_image_says_what_it_is(head: bytes, what: str) -> None:
    with pytest.raises(InvalidImage) as refused:
        format_name(head)
    assert str(refused.value) == what


@pytest.mark.parametrize(
    ("data", "channels", "dtype", "changes"),
    [
        (save(of_mode("1"), "BMP"), 1, "uint8", ("from BMP",)),
        (save(of_mode("L"), "BMP"), 1, "uint8", ("from BMP",)),
        (save(picture(), "BMP"), 3, "uint8", ("from BMP",)),
        (save(of_mode("P"), "BMP"), 3, "uint8", ("from BMP",)),
        (save(of_mode("1"), "TIFF"), 1, "uint8", ("from TIFF",)),
        (save(of_mode("L"), "TIFF"), 1, "uint8", ("from TIFF",)),
        (save(of_mode("I;16"), "TIFF"), 1, "uint16", ("from TIFF",)),
        (save(of_mode("I;16B"), "TIFF"), 1, "uint16", ("from TIFF",)),
        (save(of_mode("LA"), "TIFF"), 2, "uint8", ("from TIFF",)),
        (save(of_mode("RGBA"), "TIFF"), 4, "uint8", ("from TIFF",)),
        (save(of_mode("LAB"), "TIFF"), 3, "uint8", ("from TIFF",)),
        (save(of_mode("YCbCr"), "TIFF"), 3, "uint8", ("from TIFF",)),
        (save(of_mode("P"), "TIFF"), 3, "uint8", ("from TIFF",)),
        (save(of_mode("CMYK"), "TIFF"), 3, "uint8", ("from TIFF", "from CMYK")),
        (
            save(of_mode("CMYK"), "TIFF", icc_profile=profile("Adobe RGB")),
            3,
            "uint8",
            ("from TIFF", "from CMYK"),
        ),
        (save(of_mode("L"), "TIFF", icc_profile=profile("Adobe RGB")), 1, "uint8", ("from TIFF",)),
        (save(picture(), "TIFF", icc_profile=profile("Adobe RGB")), 3, "uint8", ("from TIFF", "to sRGB")),
        (save(picture(), "TIFF", icc_profile=profile()), 3, "uint8", ("from TIFF",)),
        (save(stored(6), "TIFF", exif=exif(6)[6:]), 3, "uint8", ("from TIFF", "turned upright (EXIF)")),
        (save(picture(), "TIFF", exif=exif(1)[6:]), 3, "uint8", ("from TIFF",)),
        (frames("TIFF"), 3, "uint8", ("from TIFF", "the first frame of several")),
        (save(of_mode("P"), "GIF"), 3, "uint8", ("from GIF",)),
        (save(of_mode("P"), "GIF", transparency=clear_index()), 4, "uint8", ("from GIF",)),
        (save(of_mode("L"), "GIF"), 3, "uint8", ("from GIF",)),
        (frames("GIF"), 3, "uint8", ("from GIF", "the first frame of several")),
        (save(picture(), "WEBP"), 3, "uint8", ("from WebP",)),
        (save(of_mode("RGBA"), "WEBP"), 4, "uint8", ("from WebP",)),
        (save(of_mode("L"), "JPEG2000"), 1, "uint8", ("from JPEG 2000",)),
        (save(of_mode("LA"), "JPEG2000"), 2, "uint8", ("from JPEG 2000",)),
        (save(of_mode("RGBA"), "AVIF"), 4, "uint8", ("from AVIF",)),
        (heic(of_mode("RGBA")), 4, "uint8", ("from HEIC",)),
    ],
)
def test_a_picture_has_the_channels_and_bits_of_its_mode(
    data: bytes, channels: int, dtype: str, changes: tuple[str, ...]
) -> None:
    info = look(data)
    encoding = changes[0].removeprefix("from ")
    assert info == ImageInfo(32, 48, channels, dtype, encoding, changes)


@pytest.mark.parametrize("tag", [{254: 1}, {254: 3}, {50706: b"\1\4\0\0"}])
def test_a_raw_photograph_is_told_by_its_tags(tag: dict[int, object]) -> None:
    with pytest.raises(InvalidImage, match="is a raw photograph"):
        look(save(picture(), "TIFF", tiffinfo=tag))
    assert look(save(picture(), "TIFF", tiffinfo={254: 2})).encoding == "TIFF"


def test_pixels_of_other_kinds_are_refused() -> None:
    for mode in ("I", "F"):
        with pytest.raises(InvalidImage) as refused:
            look(save(Image.new(mode, (2, 2)), "TIFF"))
        assert str(refused.value) == f"has pixels of the kind {mode}, expected 8 or 16 bits a channel"
