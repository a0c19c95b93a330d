"""The field of an array's rows, and the values that a record holds of them."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture

from tpuctl.data.arrays import Field, given_field, infer_field, label_field, target_field
from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.schema.features import Feature, Image, Label, Tensor, Text
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import Encoder
from tpuctl.errors import UsageError


def inferred(dtype: str, *shape: int) -> Field:
    return infer_field("x_train", np.dtype(dtype), shape)


def held(field: Field, values: Any, dtype: str, kind: str = "int64") -> list[Any]:
    """Return what a record has of a row."""
    encoder = Encoder({"x": kind})  # type: ignore[dict-item]
    return list(decode(encoder.encode([field.convert(np.array(values, dtype).tobytes())]))["x"])


@pytest.mark.parametrize(
    ("dtype", "shape", "feature"),
    [
        ("uint8", (2, 3), Image((2, 3, 1), "uint8", "png")),
        ("uint8", (2, 3, 1), Image((2, 3, 1), "uint8", "png")),
        ("uint8", (2, 3, 3), Image((2, 3, 3), "uint8", "png")),
        ("uint8", (2, 3, 4), Image((2, 3, 4), "uint8", "png")),
        ("uint8", (2, 3, 2), Tensor("uint8", (2, 3, 2))),
        ("uint8", (2, 3, 5), Tensor("uint8", (2, 3, 5))),
        ("uint8", (0, 3), Tensor("uint8", (0, 3))),
        ("uint8", (2, 0), Tensor("uint8", (2, 0))),
        ("uint8", (4,), Tensor("uint8", (4,))),
        ("uint8", (), Tensor("uint8")),
        ("uint8", (1, 2, 3, 3), Tensor("uint8", (1, 2, 3, 3))),
        ("int8", (2, 3), Tensor("int8", (2, 3))),
        ("uint16", (2, 3), Tensor("uint16", (2, 3))),
        ("int64", (), Tensor("int64")),
        ("bool", (2,), Tensor("bool", (2,))),
        ("float16", (2,), Tensor("float32", (2,))),
        ("float64", (), Tensor("float32")),
        ("U5", (), Text()),
        ("S5", (), Tensor("string")),
        ("U5", (2,), Tensor("string", (2,))),
        ("S5", (2,), Tensor("string", (2,))),
    ],
)
def test_the_feature_of_an_array_is_that_of_its_type_and_shape(
    dtype: str, shape: tuple[int, ...], feature: Feature
) -> None:
    assert inferred(dtype, *shape).feature == feature


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "V3"])
def test_what_no_record_can_hold_is_named(dtype: str) -> None:
    with pytest.raises(UsageError) as refused:
        inferred(dtype)
    assert refused.value.message == f"'x_train' holds {np.dtype(dtype).name}, which no record can."


def test_a_picture_is_a_png_of_its_bytes() -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    value = inferred("uint8", 2, 3, 3).convert(pixels.tobytes())
    assert isinstance(value, bytes)
    with Picture.open(io.BytesIO(value)) as picture:
        assert (np.asarray(picture) == pixels).all()


def test_numbers_and_texts_are_those_of_the_row() -> None:
    assert held(inferred("int16", 2), [-1, 300], "int16") == [-1, 300]
    assert held(inferred("bool"), True, "bool") == [1]
    assert held(inferred("float64", 2), [0.5, -2], "float64", "float") == [0.5, -2.0]
    assert held(inferred("float64"), np.inf, "float64", "float") == [np.inf]
    assert held(inferred("U5"), "größe", "U5", "bytes") == ["größe".encode()]
    assert held(inferred("S5"), b"ab", "S5", "bytes") == [b"ab"]
    assert held(inferred("U2", 2), ["ab", "c"], "U2", "bytes") == [b"ab", b"c"]


def test_a_number_that_32_bits_do_not_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^holds a number that is too large for 32 bits$"):
        held(inferred("float64", 2), [1, 1e39], "float64", "float")
    assert held(inferred("float64", 2), [np.inf, 1e39], "float64", "float") == [np.inf, np.inf]
    assert np.isnan(held(inferred("float64"), np.nan, "float64", "float")).all()


def given(dtype: str, kind: str, *shape: int) -> Field:
    return given_field("x_train", np.dtype(dtype), shape, kind)


@pytest.mark.parametrize(
    ("dtype", "kind", "shape", "feature"),
    [
        ("uint8", "bytes", (2,), Tensor("string")),
        ("V3", "bytes", (), Tensor("string")),
        ("int32", "int", (2,), Tensor("int64", (2,))),
        ("uint8", "int", (2, 3), Tensor("int64", (2, 3))),
        ("float32", "int", (), Tensor("int64")),
        ("bool", "float", (), Tensor("float32")),
        ("int8", "bool", (3,), Tensor("bool", (3,))),
        ("U5", "text", (), Text()),
        ("S5", "text", (2,), Tensor("string", (2,))),
    ],
)
def test_a_given_type_decides(dtype: str, kind: str, shape: tuple[int, ...], feature: Feature) -> None:
    assert given(dtype, kind, *shape).feature == feature


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("U5", "int"),
        ("S5", "float"),
        ("complex64", "int"),
        ("int64", "text"),
        ("V0", "bytes"),
        ("U5", "bool"),
    ],
)
def test_an_array_of_another_type_cannot_be_that(dtype: str, kind: str) -> None:
    with pytest.raises(UsageError) as refused:
        given(dtype, kind)
    assert refused.value.message == f"'x_train' holds {np.dtype(dtype).name}, and cannot be {kind}."


def test_values_are_converted_to_the_given_type() -> None:
    assert given("int16", "bytes", 2).convert(b"\1\0\2\0") == b"\1\0\2\0"
    assert held(given("int32", "float", 2), [1, -2], "int32", "float") == [1.0, -2.0]
    assert held(given("float64", "float"), 0.5, "float64", "float") == [0.5]
    assert held(given("float32", "int", 2), [1, -2], "float32") == [1, -2]
    assert held(given("float32", "bool"), 1, "float32") == [1]
    assert held(given("uint8", "int"), 255, "uint8") == [255]
    for value in (0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^holds a number that is not whole$"):
            held(given("float32", "int", 2), [1, value], "float32")


def test_a_label_is_the_number_of_its_class() -> None:
    collector = ClassCollector("y")
    collector.add(["dog", "cat"])
    field = label_field(np.dtype("U3"), collector.finish())
    assert field.feature == Label(("cat", "dog"))
    assert [field.convert(np.array([name]).tobytes()) for name in ("dog", "cat")] == [1, 0]
    with pytest.raises(ValueError, match=r"^has no label$"):
        field.convert(np.array(["cow"]).tobytes())


def test_a_target_without_a_number_does_not_fit() -> None:
    whole = inferred("int64")
    assert target_field(whole, np.dtype("int64")) is whole
    real = target_field(inferred("float64", 2), np.dtype("float64"))
    assert real.feature == Tensor("float32", (2,))
    assert held(real, [0.5, np.inf], "float64", "float") == [0.5, np.inf]
    with pytest.raises(ValueError, match=r"^has no label, but NaN$"):
        real.convert(struct.pack("2d", 1, np.nan))
