"""What the records of an array become: images, numbers or texts, and the class of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tpuctl.data.images.raw_png import CHANNELS, RawPng
from tpuctl.data.schema.features import TYPES, Feature, Image, Label, Tensor, Text
from tpuctl.data.tables.columns import InvalidValue
from tpuctl.data.tfrecord.example_encoding import packed_floats, packed_ints
from tpuctl.errors import UsageError


class Field(NamedTuple):
    """A field of the records, and how the bytes of an array's row become a value for the `Encoder`."""

    feature: Feature
    convert: Callable[[bytes], Any]
    """Raises InvalidValue."""


def infer_field(where: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    """Return the field for rows of this type and shape; raises UsageError where a record cannot hold them.

    Bytes in two dimensions, or three with 1, 3 or 4 channels last, are images.
    """
    if dtype == np.uint8 and (picture := _picture(shape)):
        return Field(Image((picture.height, picture.width, picture.channels), "uint8", "png"), picture.encode)
    if dtype.kind in "US":
        return _texts(dtype, shape)
    if dtype.kind in "iub":
        return Field(Tensor(dtype.name, shape), _numbers(dtype, packed_ints))
    if dtype.kind == "f":
        return Field(Tensor("float32", shape), _numbers(dtype, _narrowed))
    raise UsageError(
        f"'{where}' holds {dtype.name}, which no record can.",
        hint="Numbers, truth values and texts are taken.",
    )


def given_field(where: str, dtype: np.dtype[Any], shape: tuple[int, ...], kind: str) -> Field:
    """Return the field of a type in `features.TYPES`; raises UsageError where the array cannot be that."""
    wanted = TYPES[kind]
    if kind == "bytes" and dtype.itemsize:
        return Field(wanted, bytes)
    if kind in ("int", "float", "bool") and dtype.kind in "iubf" and isinstance(wanted, Tensor):
        pack = _narrowed if kind == "float" else _rounded if dtype.kind == "f" else packed_ints
        return Field(Tensor(wanted.dtype, shape), _numbers(dtype, pack))
    if kind == "text" and dtype.kind in "US":
        return _texts(dtype, shape)
    raise UsageError(f"'{where}' holds {dtype.name}, and cannot be {kind}.", hint="Leave its --type out.")


def label_field(dtype: np.dtype[Any], names: tuple[str, ...], numbers: Mapping[Any, int]) -> Field:
    """Return the field of a class, from the value that stands in the array."""

    def convert(row: bytes) -> int:
        try:
            return numbers[np.frombuffer(row, dtype)[0].item()]
        except KeyError:
            raise InvalidValue("has no label") from None

    return Field(Label(names), convert)


def target_field(field: Field, dtype: np.dtype[Any]) -> Field:
    """Return a field that is to be learnt: not a number is a misfit."""
    if dtype.kind != "f":
        return field

    def convert(row: bytes) -> Any:
        if np.isnan(np.frombuffer(row, dtype)).any():
            raise InvalidValue("has no label, but NaN")
        return field.convert(row)

    return field._replace(convert=convert)


def _picture(shape: tuple[int, ...]) -> RawPng | None:
    height, width, channels = (*shape, 1) if len(shape) == 2 else shape if len(shape) == 3 else (0, 0, 0)
    return RawPng(height, width, channels) if height and width and channels in CHANNELS else None


def _texts(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    def one(row: bytes) -> str | bytes:
        return np.frombuffer(row, dtype)[0].item()  # type: ignore[no-any-return]

    def several(row: bytes) -> list[str] | list[bytes]:
        return list(np.frombuffer(row, dtype).tolist())

    scalar: Feature = Text() if dtype.kind == "U" else Tensor("string")
    return Field(Tensor("string", shape), several) if shape else Field(scalar, one)


def _numbers(dtype: np.dtype[Any], pack: Callable[[Any], bytes]) -> Callable[[bytes], bytes]:
    return lambda row: pack(np.frombuffer(row, dtype))


def _narrowed(values: Any) -> bytes:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if np.isinf(narrow).any() and not np.isinf(values).any():
        raise InvalidValue("holds a number that is too large for 32 bits")
    return packed_floats(narrow)


def _rounded(values: Any) -> bytes:
    if not (np.isfinite(values) & (values == np.trunc(values))).all():
        raise InvalidValue("holds a number that is not whole")
    return packed_ints(values.astype(np.int64))
