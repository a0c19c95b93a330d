"""A contact sheet, pixel by pixel: each image in its place, its caption below."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageDraw

from tests.hostile.text import ESCAPES, steers
from tpuctl.data.images.contact_sheet import contact_sheet, undrawable
from tpuctl.text import printable


def encoded(mode: str, size: tuple[int, int], color: object = 0) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, color).save(stream, "PNG")  # type: ignore[arg-type]
    return stream.getvalue()


def sheet(*images: tuple[bytes, str]) -> Image.Image:
    return Image.open(io.BytesIO(contact_sheet(images).png))


def test_images_stand_in_rows_each_in_its_place() -> None:
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    drawn = sheet(*((encoded("RGB", (4, 4), color), "") for color in colors))
    assert drawn.size == (2 * 132 + 4, 2 * 148 + 4)
    assert [drawn.getpixel(place) for place in ((68, 68), (200, 68), (68, 216))] == colors
    assert drawn.getpixel((200, 216)) == (255, 255, 255)


def test_the_shape_of_an_image_is_kept() -> None:
    drawn = sheet((encoded("L", (400, 100)), ""))
    assert (drawn.getpixel((68, 68)), drawn.getpixel((68, 20))) == ((0, 0, 0), (255, 255, 255))


@pytest.mark.parametrize(
    ("mode", "color", "expected"),
    [
        ("1", 1, (255, 255, 255)),
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),
        ("LA", (10, 255), (10, 10, 10)),
        ("P", 0, (0, 0, 0)),
        ("I;16", 40_000, (156, 156, 156)),
    ],
)
def test_every_mode_is_shown(mode: str, color: object, expected: tuple[int, int, int]) -> None:
    assert sheet((encoded(mode, (4, 4), color), "")).getpixel((68, 68)) == expected


def caption_strip(caption: str) -> Image.Image:
    """The strip below a single white image, as wide as the sheet."""
    return sheet((encoded("L", (4, 4), 255), caption)).crop((0, 132, 136, 152))


def drawn(text: str) -> Image.Image:
    """The same strip with a text that Pillow itself draws there."""
    strip = Image.new("RGB", (136, 20), (255, 255, 255))
    ImageDraw.Draw(strip).text((4, 2), text, fill=(0, 0, 0))
    return strip


@pytest.mark.parametrize("caption", ["", "7", "0 (cat)", "quill, 12", "{~}"])
def test_a_caption_stands_below_its_image(caption: str) -> None:
    assert caption_strip(caption).tobytes() == drawn(caption).tobytes()
    assert caption_strip(caption).tobytes() != drawn("x").tobytes()


def test_each_caption_stands_below_its_own_image() -> None:
    white = encoded("L", (4, 4), 255)
    second = sheet((white, "first"), (white, "second")).crop((132, 132, 268, 152))
    assert second.tobytes() == drawn("second").tobytes()


def test_a_caption_that_is_wider_than_its_image_is_cut_and_says_so() -> None:
    caption = "a very long name of a class, longer than the image is wide"
    font = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    fitting = [caption[:end] + ".." for end in range(60) if font.textlength(caption[:end] + "..") <= 128]
    assert caption_strip(caption).tobytes() == drawn(fitting[-1]).tobytes()


@pytest.mark.parametrize(("caption", "shown"), [("1 (кот)", "1 (???)"), ("Käse", "K?se"), ("猫", "?")])
def test_what_the_font_lacks_is_a_question_mark(caption: str, shown: str) -> None:
    assert caption_strip(caption).tobytes() == drawn(shown).tobytes()


def test_the_font_lacks_what_is_not_ascii() -> None:
    """As long as this is so: with a font that has them, nothing needs to be replaced."""
    lacking = drawn("\uffff").tobytes()
    assert all(drawn(character).tobytes() != lacking for character in map(chr, range(33, 127)))
    assert drawn("к").tobytes() == drawn("é").tobytes() == lacking


def test_the_characters_that_cannot_be_drawn_are_named_once() -> None:
    assert undrawable(["1 (кот)", "2 (ток)", "plain"]) == "кот"
    assert undrawable(["plain", ""]) == ""


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_a_caption_from_elsewhere_is_drawn_as_its_codes(escape: str) -> None:
    image = encoded("L", (4, 4))
    assert sheet((image, escape)).tobytes() == sheet((image, printable.line(escape))).tobytes()
    assert not steers(undrawable([escape]))
