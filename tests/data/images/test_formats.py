"""Which format a file is of, by its beginning, whatever its name; and what else it may be."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.data.images.zoo.files import frames, heic
from tests.data.images.zoo.pictures import clear_index, exif, of_mode, picture, profile, save, stored
from tpuctl.data.images.header import ImageInfo, InvalidImage, format_name, look


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
