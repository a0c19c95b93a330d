"""A contact sheet, pixel by pixel: each image in its place, its caption below."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image, ImageDraw

from tests.hostile.text import ESCAPES, steers
from tpuctl import printable
from tpuctl.data.images import decoding
from tpuctl.data.images.contact_sheet import caption_font, contact_sheet, undrawable
from tpuctl.data.images.rule import ImageRule


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
    ("size", "box"),
    [
        ((100, 400), (48, 0, 80, 128)),
        ((400, 100), (0, 48, 128, 80)),
        ((4, 4), (0, 0, 128, 128)),
        ((1000, 2), (0, 63, 128, 64)),
        ((2, 1000), (63, 0, 64, 128)),
        ((3, 1), (0, 42, 128, 85)),
    ],
)
def test_an_image_is_in_the_middle_of_its_place(
    size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    place = sheet((encoded("RGB", size, (255, 0, 0)), "")).crop((4, 4, 132, 132))
    green = place.split()[1].point(lambda value: 255 - value)
    assert green.getbbox() == box


@pytest.mark.parametrize("side", [2, 64])
def test_a_small_image_is_shown_in_squares(side: int) -> None:
    image = Image.new("RGB", (side, side), (255, 255, 255))
    image.putpixel((1, 0), (255, 0, 0))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    place = sheet((stream.getvalue(), "")).crop((4, 4, 132, 132))
    square = (128 // side) ** 2
    assert sorted(place.getcolors() or []) == [(square, (255, 0, 0)), (128**2 - square, (255, 255, 255))]


MODES = pytest.mark.parametrize(
    ("mode", "color", "expected"),
    [
        ("RGBA", (10, 20, 30, 128), (132, 137, 142)),
        ("LA", (10, 0), (255, 255, 255)),
        ("RGB", (10, 20, 30), (10, 20, 30)),
        ("L", 7, (7, 7, 7)),
        ("I;16", 65_535, (255, 255, 255)),
        ("1", 1, (255, 255, 255)),
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),
        ("LA", (10, 255), (10, 10, 10)),
        ("P", 0, (0, 0, 0)),
        ("I;16", 40_000, (156, 156, 156)),
    ],
)


@MODES
def test_every_mode_is_shown(mode: str, color: object, expected: tuple[int, int, int]) -> None:
    assert sheet((encoded(mode, (4, 4), color), "")).getpixel((68, 68)) == expected


@MODES
def test_every_mode_of_a_large_image_is_shown(
    mode: str, color: object, expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LARGE", 4)
    assert sheet((encoded(mode, (512, 512), color), "")).getpixel((68, 68)) == expected


@pytest.mark.parametrize("large", [4, 1 << 20])
def test_the_transparent_colour_of_a_palette_is_white(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "LARGE", large)
    image = Image.new("P", (512, 512), 0)
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.paste(1, (0, 0, 512, 256))
    stream = io.BytesIO()
    image.save(stream, "PNG", transparency=0)
    drawn = sheet((stream.getvalue(), ""))
    assert (drawn.getpixel((68, 34)), drawn.getpixel((68, 102))) == ((40, 50, 60), (255, 255, 255))


def test_what_cannot_be_decoded_is_a_box_with_a_cross_from_corner_to_corner() -> None:
    box = sheet((b"no image", "")).crop((4, 4, 132, 132))
    white, ends = (255, 255, 255), (0, 127)
    for x in range(128):
        for y in range(128):
            is_line = x in ends or y in ends or x == y or x == 127 - y
            assert box.getpixel((x, y)) == ((160, 160, 160) if is_line else white), (x, y)


def test_why_each_image_could_not_be_drawn_is_told_in_order() -> None:
    images = [(b"", "0"), (encoded("L", (4, 4)), "1"), (b"no image", "2")]
    assert contact_sheet(images).problems == ["is empty", "is not a PNG or JPEG image"]


def caption_strip(caption: str) -> Image.Image:
    """The strip below a single white image, as wide as the sheet."""
    return sheet((encoded("L", (4, 4), 255), caption)).crop((0, 132, 136, 152))


def drawn(text: str) -> Image.Image:
    """The same strip with a text that Pillow itself draws there."""
    strip = Image.new("RGB", (136, 20), (255, 255, 255))
    ImageDraw.Draw(strip).text((4, 2), text, fill=(0, 0, 0), font=caption_font())
    return strip


@pytest.mark.parametrize("caption", ["", "7", "0 (cat)", "quill, 12", "{~}"])
def test_a_caption_stands_below_its_image(caption: str) -> None:
    assert caption_strip(caption).tobytes() == drawn(caption).tobytes()
    assert caption_strip(caption).tobytes() != drawn("x").tobytes()


def test_each_caption_stands_below_its_own_image() -> None:
    white = encoded("L", (4, 4), 255)
    second = sheet((white, "first"), (white, "second")).crop((132, 132, 268, 152))
    assert second.tobytes() == drawn("second").tobytes()


@pytest.mark.parametrize("more", ["", "!"])
def test_a_caption_that_is_wider_than_its_image_is_cut_and_says_so(more: str) -> None:
    caption = f"a very long name of a class, longer than the image is wide{more}"
    font = caption_font()
    fitting = [caption[:end] + ".." for end in range(60) if font.getlength(caption[:end] + "..") <= 128]
    assert caption_strip(caption).tobytes() == drawn(fitting[-1]).tobytes()


def test_of_a_long_caption_no_more_is_measured_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    original = ImageDraw.ImageDraw.textlength

    def textlength(draw: ImageDraw.ImageDraw, text: str, *arguments: Any) -> float:
        measured.append(len(text))
        assert len(measured) < 200
        return original(draw, text, *arguments)

    monkeypatch.setattr(ImageDraw.ImageDraw, "textlength", textlength)
    assert caption_strip("i" * 5000).tobytes() == caption_strip("i" * 100).tobytes()
    assert max(measured) < 200


@pytest.mark.parametrize(
    ("caption", "shown"),
    [("1 (猫)", "1 (?)"), ("кот cat", "??? cat"), ("Käse", "Kase"), ("e\u0301", "e"), ("why?", "why?")],
)
def test_letters_are_without_accents_and_others_a_question_mark(caption: str, shown: str) -> None:
    assert caption_strip(caption).tobytes() == drawn(shown).tobytes()


def test_the_characters_that_cannot_be_drawn_are_named_once() -> None:
    assert undrawable(["1 (猫犬)", "2 (犬)", "Käse?"]) == "犬猫"
    assert undrawable(["plain", ""]) == ""


def test_what_was_converted_has_a_frame_and_the_reason() -> None:
    kept = encoded("RGB", (4, 4))
    converted, _ = ImageRule(3).apply(encoded("L", (4, 4)))
    made = contact_sheet([(kept, "first"), (converted, "second")])
    assert made.converted == 1
    drawn_sheet = Image.open(io.BytesIO(made.png))
    assert drawn_sheet.size == (2 * 132 + 4, 148 + 14 + 4)
    orange = (200, 90, 0)
    assert (drawn_sheet.getpixel((4, 4)), drawn_sheet.getpixel((136, 4))) == ((0, 0, 0), orange)
    frame = drawn_sheet.crop((134, 2, 268, 134))
    is_orange = [[frame.getpixel((x, y)) == orange for x in range(134)] for y in range(132)]
    for y in range(132):
        for x in range(134):
            inside, hollow = 2 <= x < 130 and 2 <= y < 130, 4 <= x < 128 and 4 <= y < 128
            assert is_orange[y][x] == (inside and not hollow), (x, y)
    strip = drawn_sheet.crop((132, 148, 268, 164))
    expected = Image.new("RGB", (136, 16), (255, 255, 255))
    ImageDraw.Draw(expected).text((4, 0), "to 3 channels", fill=orange, font=caption_font())
    assert strip.tobytes() == expected.tobytes()


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_a_caption_from_elsewhere_is_drawn_as_its_codes(escape: str) -> None:
    image = encoded("L", (4, 4))
    assert sheet((image, escape)).tobytes() == sheet((image, printable.line(escape))).tobytes()
    assert not steers(undrawable([escape]))
