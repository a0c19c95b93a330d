"""What the records of a split hold, added up field by field: numbers, texts and pictures."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL import Image as Pillow

from tpuctl.data.analysis import contents
from tpuctl.data.analysis.comparison import fingerprint
from tpuctl.data.analysis.contents import Contents, Moments, PictureSums, Series, measure, measured
from tpuctl.data.options import TOKENS
from tpuctl.data.schema.features import Feature, Label, Several, Tensor, Text
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.tfrecord.example_encoding import encode

PICTURES: Mapping[str, Feature] = {
    "left": ImageFeature((None, None, 3)),
    "right": ImageFeature((None, None, 3)),
}


def plain_png(height: int, width: int, colour: int | tuple[int, int, int]) -> bytes:
    stream = io.BytesIO()
    Pillow.new("L" if isinstance(colour, int) else "RGB", (width, height), colour).save(stream, "PNG")
    return stream.getvalue()


def striped() -> bytes:
    stream = io.BytesIO()
    Pillow.linear_gradient("L").rotate(90).save(stream, "PNG")
    return stream.getvalue()


def added(features: Mapping[str, Feature], *records: Mapping[str, Any]) -> Contents:
    found = Contents(features)
    for record in records:
        found.add(measured(encode(record), features))
    return found


def test_a_record_has_its_size_its_values_and_its_hash() -> None:
    features = {"n": Tensor("int64"), "t": Text()}
    record = encode({"n": 7, "t": b"word"})
    found = measured(record, features)
    assert (found.size, dict(found.values)) == (len(record), {"n": [7], "t": [b"word"]})
    assert found.fingerprint == fingerprint({"n": [7], "t": [b"word"]}, features)
    assert (found.pictures, found.looks) == ({}, 0)


def test_of_each_field_the_first_picture_is_measured() -> None:
    first, second = plain_png(2, 3, 10), plain_png(4, 5, 20)
    found = measured(encode({"left": [first, second], "right": [second]}), PICTURES)
    assert found.pictures == {"left": measure(first), "right": measure(second)}


def test_a_field_that_holds_no_bytes_has_a_picture_that_cannot_be_decoded() -> None:
    assert measured(encode({"left": 3}), PICTURES).pictures == {"left": None}


def test_the_look_of_a_record_is_that_of_its_first_picture_that_can_be_decoded() -> None:
    seen = measure(striped())
    assert seen is not None
    assert seen.looks != 0
    assert measured(encode({"left": b"no picture", "right": striped()}), PICTURES).looks == seen.looks
    assert measured(encode({"left": b"no picture"}), PICTURES).looks == 0


def test_classes_are_counted_by_the_first_label_of_a_record() -> None:
    features = {"y": Label(("a", "b", "c"))}
    found = added(features, {"y": 1}, {"y": [2, 0]}, {"y": 1})
    assert found.records == 3
    assert found.classes == {"y": {1: 2, 2: 1}}
    assert (found.numbers, found.pictures) == ({}, {})


def test_a_label_that_no_record_has_counts_nothing() -> None:
    assert added({"y": Label(("a",))}, {"n": 1}).classes == {"y": {}}


@pytest.mark.parametrize(
    ("feature", "records", "numbers"),
    [
        (Tensor("int64"), [1, 2, 6], [1, 2, 6]),
        (Tensor("float32", (2,)), [[0.5, 1.5], [2.0, 4.0]], [0.5, 1.5, 2.0, 4.0]),
        (Text(), [b"word", "größer".encode(), b"", b"\xff"], [4, 6, 0, 1]),
    ],
)
def test_numbers_are_added_up_and_of_texts_their_characters(
    feature: Feature, records: list[Any], numbers: list[float]
) -> None:
    moments = added({"x": feature}, *({"x": value} for value in records)).numbers["x"].moments
    assert moments.count == len(numbers)
    assert moments.mean == pytest.approx(sum(numbers) / len(numbers))
    assert (moments.least, moments.most) == (min(numbers), max(numbers))


def test_of_tokens_those_are_counted_that_are_no_padding() -> None:
    found = added({TOKENS: Tensor("int64", (4,))}, {TOKENS: [7, 8, 9, 0]}, {TOKENS: [5, 0, 0, 0]})
    moments = found.numbers[TOKENS].moments
    assert (moments.count, moments.mean, moments.most) == (2, 2.0, 3.0)


@pytest.mark.parametrize("feature", [Tensor("string"), Several(Text()), ImageFeature((None, None, 3))])
def test_other_fields_have_no_numbers(feature: Feature) -> None:
    assert added({"x": feature}, {"x": [b"1", b"2"]}).numbers == {}


def test_pictures_are_added_up_by_field_and_number_of_channels() -> None:
    found = added(
        PICTURES,
        {"left": plain_png(2, 3, 255), "right": b"no picture"},
        {"left": plain_png(4, 3, (255, 0, 0)), "right": plain_png(1, 1, 0)},
        {"left": plain_png(2, 3, 0)},
    )
    left, right = found.pictures["left"], found.pictures["right"]
    assert (left.broken, right.broken) == (0, 1)
    assert (left.heights.moments.count, left.heights.moments.mean) == (3, pytest.approx(8 / 3))
    assert (left.widths.moments.mean, right.widths.moments.count) == (3.0, 1)
    assert left.brightness.moments.mean == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert left.sizes == {(2, 3): 2, (4, 3): 1}
    assert sorted(left.channels) == [1, 3]
    (grey,), (red, green, _) = left.channels[1], left.channels[3]
    assert (grey.count, grey.mean) == (12, 0.5)
    assert (red.count, red.mean, green.mean) == (12, 1.0, 0.0)


def test_sums_of_no_picture_are_empty() -> None:
    sums = PictureSums()
    assert (sums.broken, sums.channels, sums.sizes) == (0, {}, {})
    assert math.isnan(sums.heights.moments.mean)


def test_so_many_sizes_are_counted_and_later_ones_only_where_they_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contents, "_MOST_SIZES", 2)
    sums = PictureSums()
    for height in (1, 2, 3, 1, 3):
        sums.add(measure(plain_png(height, 1, 0)))
    assert sums.sizes == {(1, 1): 2, (2, 1): 1}
    assert sums.heights.moments.count == 5


def test_of_very_many_fields_few_numbers_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_MOST_HELD", 50)
    names = [f"x{number}" for number in range(20)]
    found = Contents(dict.fromkeys(names, Tensor("int64")))
    for value in range(100):
        found.add(measured(encode(dict.fromkeys(names, value)), found.features))
        assert sum(len(series._recent) for series in found.numbers.values()) <= 50 + 20
    assert {series.moments.mean for series in found.numbers.values()} == {49.5}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e9])
def test_moments_in_pieces_are_those_of_all_numbers(scale: float) -> None:
    numbers = rng().normal(1e6, scale, 10_000)
    total = Moments()
    for piece in np.array_split(numbers, [0, 1, 7, 5_000, 5_000, 9_999]):
        total += Moments.of(piece)
    assert total.count == 10_000
    assert total.mean == pytest.approx(numbers.mean(), rel=1e-14)
    assert total.deviation == pytest.approx(numbers.std(), rel=1e-6)
    assert (total.least, total.most) == (numbers.min(), numbers.max())


def test_numbers_that_come_one_by_one_are_added_up() -> None:
    series = Series()
    numbers = rng().integers(0, 1000, 10_000)
    for number in numbers.tolist():
        series.add(number)
    assert series.moments.mean == pytest.approx(numbers.mean(), rel=1e-13)
    assert series.moments.deviation == pytest.approx(numbers.std(), rel=1e-13)
    assert repr(Series().moments) == repr(Moments()), "no mean is NaN, which is not equal to itself"


def test_a_histogram_has_the_moments_of_its_pixels() -> None:
    pixels = rng().integers(0, 256, 100_000)
    moments = Moments.of_histogram(np.bincount(pixels, minlength=256).tolist()).scaled(1 / 255)
    assert moments.mean == pytest.approx((pixels / 255).mean(), rel=1e-14)
    assert moments.deviation == pytest.approx((pixels / 255).std(), rel=1e-13)
    assert (moments.count, moments.least, moments.most) == (100_000, 0.0, 1.0)


def test_missing_numbers_are_counted_and_left_out() -> None:
    moments = Moments.of(np.array([1.0, math.nan, 3.0])) + Moments.of(np.array([math.nan]))
    assert (moments.count, moments.mean, moments.missing) == (2, 2.0, 2)
    assert math.isnan(Moments.of(np.array([math.nan])).mean)
    assert Moments.of_histogram([0] * 256).count == 0


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
