"""Chooses the feature of an array: images, numbers, texts or classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.images.raw_png import CHANNELS, RawPng
from tpuctl.data.schema.classes import Classes
from tpuctl.data.schema.features import TYPES, Feature, Image, Label, Tensor, Text
from tpuctl.data.tables.columns import InvalidValue
from tpuctl.data.tfrecord.example_encoding import Value, packed_floats, packed_ints
from tpuctl.errors import UsageError


class Field(NamedTuple):
    """A field of the records, and the conversion of a row's bytes to a value for the `Encoder`."""

    feature: Feature
    convert: Callable[[bytes], Value]
    """Raises InvalidValue."""


def infer_field(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Field:
    """Return the field for rows of this type and shape; raises UsageError where a record cannot hold them.

    Bytes in two dimensions, or three with 1, 3 or 4 channels last, are images.
    """
    if dtype == np.uint8 and (image := _image(shape)):
        return Field(Image((image.height, image.width, image.channels), "uint8", "png"), image.encode)
    if dtype.kind in "US":
        return _texts(dtype, shape)
    if dtype.kind in "iub":
        return Field(Tensor(dtype.name, shape), _numbers(dtype, packed_ints))
    if dtype.kind == "f":
        return Field(Tensor("float32", shape), _numbers(dtype, _narrowed))
    raise UsageError(
        f"'{where}' holds {dtype.name}, which no record can.",
        hint="Numbers, truth values and texts are supported.",
    )


def given_field(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], kind: str) -> Field:
    """Return the field of a type in `features.TYPES`; raises UsageError where the array cannot be that."""
    feature = TYPES[kind]
    if kind == "bytes" and dtype.itemsize:
        return Field(feature, bytes)
    if kind in ("int", "float", "bool") and dtype.kind in "iubf" and isinstance(feature, Tensor):
        pack = _narrowed if kind == "float" else _rounded if dtype.kind == "f" else packed_ints
        return Field(Tensor(feature.dtype, shape), _numbers(dtype, pack))
    if kind == "text" and dtype.kind in "US":
        return _texts(dtype, shape)
    raise UsageError(
        f"'{where}' holds {dtype.name}, and cannot be {kind}.", hint="Run it without --type for this array."
    )


def label_field(dtype: np.dtype[np.generic], classes: Classes) -> Field:
    """Return the field of a class; a row of the array holds its name or number."""

    numbers = classes.numbers

    def convert(row: bytes) -> int:
        try:
            return numbers[np.frombuffer(row, dtype)[0].item()]
        except KeyError:
            raise InvalidValue("has no label") from None

    return Field(Label(classes.names), convert)


def target_field(field: Field, dtype: np.dtype[np.generic]) -> Field:
    """Return a field that is to be learnt: NaN raises InvalidValue."""
    if dtype.kind != "f":
        return field

    def convert(row: bytes) -> Value:
        if np.isnan(np.frombuffer(row, dtype)).any():
            raise InvalidValue("has no label, but NaN")
        return field.convert(row)

    return field._replace(convert=convert)


def _image(shape: tuple[int, ...]) -> RawPng | None:
    height, width, channels = (*shape, 1) if len(shape) == 2 else shape if len(shape) == 3 else (0, 0, 0)
    return RawPng(height, width, channels) if height and width and channels in CHANNELS else None


def _texts(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Field:
    def single(row: bytes) -> str | bytes:
        return np.frombuffer(row, dtype)[0].item()  # type: ignore[no-any-return]

    def several(row: bytes) -> list[str] | list[bytes]:
        return list(np.frombuffer(row, dtype).tolist())

    scalar: Feature = Text() if dtype.kind == "U" else Tensor("string")
    return Field(Tensor("string", shape), several) if shape else Field(scalar, single)


def _numbers(dtype: np.dtype[np.generic], pack: Callable[[NDArray[Any]], bytes]) -> Callable[[bytes], bytes]:
    return lambda row: pack(np.frombuffer(row, dtype))


def _narrowed(values: NDArray[np.floating]) -> bytes:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if np.isinf(narrow).any() and not np.isinf(values).any():
        raise InvalidValue("holds a number that is too large for 32 bits")
    return packed_floats(narrow)


def _rounded(values: NDArray[np.floating]) -> bytes:
    if not (np.isfinite(values) & (values == np.trunc(values))).all():
        raise InvalidValue("holds a number that is not whole")
    return packed_ints(values.astype(np.int64))
