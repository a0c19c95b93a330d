"""What a picture becomes: which format, which mode, which values of its pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from tests.data.images.zoo.files import ZOO, usable_names
from tests.data.images.zoo.pictures import (
    BLUE,
    GREEN,
    RED,
    clear_index,
    exif,
    of_mode,
    picture,
    profile,
    save,
    stored,
)
from tpuctl.data.images.header import look
from tpuctl.data.images.report import conversion_of
from tpuctl.data.images.rule import Goal, ImageRule, converted

LOSSY = (".jpg", ".webp", ".jp2", ".j2k", ".avif", ".heic")
NO_LOSS = {"png-inside.jpg", "lossless.webp"}
WITH_LOSS = {"jpeg-inside.png", "webp-inside.jpg", "heic-inside.jpg"}
WIDE = np.array([[0, 255, 256, 511], [512, 32_767, 65_279, 65_535]], np.uint16)


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def to(
    data: bytes, channels: int = 3, dtype: str = "uint8", size: tuple[int, int] | None = None
) -> Image.Image:
    return opened(converted(data, look(data), Goal(channels, dtype, size), ("why",)))


@pytest.mark.parametrize("name", usable_names())
def test_what_was_lossy_becomes_a_jpeg_and_everything_else_a_png(name: str) -> None:
    data = ZOO[name].make()
    is_lossy = name in WITH_LOSS or (name.endswith(LOSSY) and name not in NO_LOSS)
    assert to(data).format == ("JPEG" if is_lossy else "PNG")
    clear = to(data, 4)
    assert (clear.format, clear.mode) == ("PNG", "RGBA")


def test_a_jpeg_has_quality_95_and_half_of_the_colours() -> None:
    made = to(ZOO["lossy.webp"].make())
    reference = opened(save(picture(), "JPEG", quality=95, subsampling="4:2:0"))
    assert isinstance(made, JpegImagePlugin.JpegImageFile)
    assert isinstance(reference, JpegImagePlugin.JpegImageFile)
    assert made.quantization == reference.quantization
    assert JpegImagePlugin.get_sampling(made) == 2


@pytest.mark.parametrize("name", ["lossy.webp", "drawing.png"])
def test_the_reasons_are_in_the_file_and_nothing_of_the_original(name: str) -> None:
    data = (
        save(stored(6), "WEBP", exif=exif(6))
        if name.endswith("webp")
        else save(picture(), "PNG", exif=exif(1))
    )
    made = converted(data, look(data), Goal(3, "uint8", None), ("to sRGB", "to 3 channels"))
    assert conversion_of(made) == "to sRGB, to 3 channels"
    assert opened(made).getexif() == {}
    silent = converted(data, look(data), Goal(3, "uint8", None), ())
    assert conversion_of(silent) == ""
    assert "Comment" not in opened(silent).info


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("source", ["L", "LA", "RGB", "RGBA", "P", "1", "CMYK", "I;16"])
def test_every_mode_becomes_every_number_of_channels(source: str, channels: int, mode: str) -> None:
    encoding = "TIFF" if source in ("CMYK", "I;16") else "PNG"
    made = to(save(of_mode(source), encoding), channels)
    assert (made.mode, made.size) == (mode, (48, 32))
    if mode in ("RGB", "RGBA") and source in ("RGB", "RGBA", "P"):
        places = ((6, 6), (6, 25)) if source == "RGBA" else ((6, 6), (40, 6), (6, 25))
        colours = {(6, 6): RED, (40, 6): GREEN, (6, 25): BLUE}
        pixels = [made.getpixel(place) for place in places]
        assert [pixel[:3] for pixel in pixels if isinstance(pixel, tuple)] == [
            colours[place] for place in places
        ]


@pytest.mark.parametrize(
    ("source", "channels", "expected"),
    [("RGBA", 3, (255, 255, 255)), ("LA", 1, 255), ("LA", 3, (255, 255, 255)), ("RGBA", 1, 255)],
)
def test_what_is_transparent_becomes_white(source: str, channels: int, expected: object) -> None:
    made = to(save(of_mode(source), "PNG"), channels)
    assert made.getpixel((40, 6)) == expected
    assert made.getpixel((6, 6)) != expected
    half = Image.new("LA", (1, 1), (0, 128))
    assert to(save(half, "PNG"), 1).getpixel((0, 0)) == 127


def test_a_palette_with_transparency_keeps_it() -> None:
    data = save(of_mode("P"), "PNG", transparency=clear_index())
    assert to(data, 4).getpixel((40, 6))[3] == 0  # type: ignore[index]
    assert to(data, 3).getpixel((40, 6)) == (255, 255, 255)
    assert to(save(of_mode("P"), "PNG"), 4).getpixel((40, 6)) == (*GREEN, 255)


def test_transparency_keeps_no_colour_from_being_in_srgb() -> None:
    colour = (100, 150, 200)
    plain, clear = (Image.new("RGB", (1, 1), colour), Image.new("RGBA", (1, 1), (*colour, 7)))
    made = to(save(plain, "PNG", icc_profile=profile("Adobe RGB"))).getpixel((0, 0))
    assert made != colour
    kept = to(save(clear, "PNG", icc_profile=profile("Adobe RGB")), 4).getpixel((0, 0))
    assert kept == (*made, 7)  # type: ignore[misc]


def test_16_bits_stay_or_lose_their_lower_half() -> None:
    data = save(Image.fromarray(WIDE), "PNG")
    kept = to(data, 1, "uint16")
    assert np.asarray(kept).tolist() == WIDE.tolist()
    assert np.asarray(to(data, 1)).tolist() == (WIDE >> 8).tolist()
    assert np.asarray(to(data, 3))[:, :, 1].tolist() == (WIDE >> 8).tolist()


def test_8_bits_become_16_over_all_of_their_range() -> None:
    narrow = np.array([[0, 1, 128, 255]], np.uint8)
    made = to(save(Image.fromarray(narrow), "PNG"), 1, "uint16")
    assert np.asarray(made).tolist() == [[0, 257, 128 * 257, 65_535]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_before_it_is_brought_to_a_size(orientation: int) -> None:
    data = save(stored(orientation), "PNG", exif=exif(orientation))
    made = to(data, 3, size=(16, 24))
    assert made.size == (24, 16)
    assert [made.getpixel(place) for place in ((3, 3), (20, 3), (3, 12))] == [RED, GREEN, BLUE]


def test_a_size_is_height_and_width() -> None:
    data = save(picture(), "PNG")
    assert to(data, 3, size=(5, 7)).size == (7, 5)
    assert to(data, 3, size=(32, 48)).tobytes() == picture().tobytes()
    assert ImageRule(size=(5, 7)).apply(data)[1][:2] == (5, 7)
