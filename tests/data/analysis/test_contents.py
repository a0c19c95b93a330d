"""What the records of a split hold, added up field by field."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import pytest
from PIL import Image as Pillow

from tpuctl.data.analysis import contents
from tpuctl.data.analysis.comparison import fingerprint
from tpuctl.data.analysis.contents import Contents, PictureSums, measure, measured
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
