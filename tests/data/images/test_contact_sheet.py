from __future__ import annotations

import io

import pytest
from PIL import Image

from tpuctl.data.images.contact_sheet import contact_sheet


def encoded(mode: str, size: tuple[int, int], color: object = 0) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, color).save(stream, "PNG")  # type: ignore[arg-type]
    return stream.getvalue()


def sheet(*images: tuple[bytes, str]) -> Image.Image:
    return Image.open(io.BytesIO(contact_sheet(images)))


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


def test_a_caption_stands_below_however_long_and_in_whatever_script() -> None:
    for caption in ("7", "a very long name of a class, longer than the image is wide", "кот"):
        drawn = sheet((encoded("L", (4, 4), 255), caption)).crop((0, 133, 136, 152)).convert("L")
        assert drawn.getextrema()[0] < 128
