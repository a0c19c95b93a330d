from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tpuctl.data.analysis.contents import measure


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def png(pixels: NDArray[np.integer]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_the_moments_of_each_channel_are_those_of_its_pixels(channels: int) -> None:
    pixels = rng().integers(0, 256, (17, 23, channels), np.uint8)
    picture = measure(png(pixels[..., 0] if channels == 1 else pixels))
    assert picture is not None
    assert (picture.height, picture.width, len(picture.channels)) == (17, 23, channels)
    for place, moments in enumerate(picture.channels):
        values = pixels[..., place] / 255
        assert moments.mean == pytest.approx(values.mean(), rel=1e-12)
        assert moments.deviation == pytest.approx(values.std(), rel=1e-12)
    colours = pixels[..., : {2: 1, 4: 3}.get(channels, channels)]
    assert picture.brightness == pytest.approx((colours / 255).mean(), rel=1e-12)


@pytest.mark.parametrize(("form", "order"), [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")])
def test_a_picture_of_16_bits_has_the_moments_of_its_pixels(form: str, order: str) -> None:
    pixels = rng().integers(0, 65536, (9, 11), np.uint16)
    stream = io.BytesIO()
    Image.fromarray(pixels.astype(order)).save(stream, form)
    picture = measure(stream.getvalue())
    assert picture is not None
    assert picture.channels[0].mean == pytest.approx((pixels / 65535).mean(), rel=1e-12)


def test_pictures_that_look_alike_have_the_same_look() -> None:
    down, across = np.mgrid[0:64, 0:64]
    pixels = (128 + 100 * np.sin(down / 9) * np.cos(across / 7)).astype(np.uint8)
    first, brighter = measure(png(pixels)), measure(png(pixels + np.uint8(5)))
    other = measure(png(pixels.T[::-1].copy()))
    assert first is not None
    assert brighter is not None
    assert other is not None
    assert first.looks == brighter.looks != other.looks


@pytest.mark.parametrize(
    ("mode", "form", "channels"),
    [
        ("1", "PNG", 1),
        ("P", "PNG", 3),
        ("L", "PNG", 1),
        ("LA", "PNG", 2),
        ("PA", "TIFF", 4),
        ("CMYK", "TIFF", 3),
        ("RGB", "JPEG", 3),
    ],
)
def test_pictures_of_each_mode_have_the_moments_of_what_is_seen(mode: str, form: str, channels: int) -> None:
    drawn = Image.fromarray(rng().integers(0, 256, (16, 24, 3), np.uint8)).convert(mode)
    stream = io.BytesIO()
    drawn.save(stream, form)
    picture = measure(stream.getvalue())
    assert picture is not None
    seen = np.asarray(Image.open(stream).convert({1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels])) / 255
    assert [moments.mean for moments in picture.channels] == pytest.approx(
        seen.reshape(-1, channels).mean(0).tolist(), rel=1e-12
    )


@pytest.mark.parametrize("data", [b"", b"no picture", png(rng().integers(0, 256, (9, 9), np.uint8))[:60]])
def test_what_cannot_be_decoded_is_no_picture(data: bytes) -> None:
    assert measure(data) is None


def test_a_look_has_64_bits_and_is_that_of_the_brightness() -> None:
    colours = Image.fromarray(rng().integers(0, 256, (40, 50, 3), np.uint8))
    grey, coloured = measure(png(np.asarray(colours.convert("L")))), measure(png(np.asarray(colours)))
    assert grey is not None
    assert coloured is not None
    assert 0 < coloured.looks == grey.looks < 1 << 64


@pytest.mark.parametrize(("pixels", "looks"), [([0, 255], (1 << 64) - 1), ([255, 0], 0), ([7, 7], 0)])
def test_each_part_that_is_brighter_than_the_one_before_it_is_a_bit(pixels: list[int], looks: int) -> None:
    row = np.linspace(*pixels, 90).astype(np.uint8)
    picture = measure(png(np.tile(row, (80, 1))))
    assert picture is not None
    assert picture.looks == looks
