"""Reads the features that `datasets` declares in the metadata of a schema: classes, shapes of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from tpuctl.data.schema.classes import MOST_CLASSES
from tpuctl.data.schema.features import Label, Several, Tensor
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole
from tpuctl.data.tfrecord.example_encoding import Scalar, Value
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    import pyarrow

_KEY = b"huggingface"
_LISTS = ("Sequence", "List", "LargeList")
_ARRAYS = ("Array2D", "Array3D", "Array4D", "Array5D")
_MOST_DIMENSIONS = 5

Declared = Mapping[str, Any] | Sequence[Any]
"""A feature as `datasets` writes it in JSON; a list of one is that of the same."""


def declared_features(schema: pyarrow.Schema) -> dict[str, Declared]:
    """Return the features by column; none where the schema has none, or says something else there."""
    try:
        content = msgspec.json.decode((schema.metadata or {}).get(_KEY, b"{}"))
        features = content["info"]["features"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def class_names(declared: Declared | None) -> tuple[str, ...]:
    """Return the names of the classes of a feature, also of a list of labels; none where it is no label."""
    label = _item(declared) or declared
    if not isinstance(label, Mapping) or label.get("_type") != "ClassLabel":
        return ()
    names = label.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    plain = tuple(" ".join(name.split()) for name in names)
    if len(plain) > MOST_CLASSES or len(set(plain)) < len(plain) or "" in plain:
        raise UsageError(
            f"The source declares {len(names)} classes, of which some have the same name, or none.",
            hint="Give each class a name of its own.",
        )
    return plain


def is_audio(declared: Declared | None) -> bool:
    """Tell whether a feature is one of sounds."""
    return isinstance(declared, Mapping) and declared.get("_type") == "Audio"


def declared_column(name: str, declared: Declared) -> Column[object] | None:
    """Return a column of labels, of lists of them, or of arrays; None for another feature."""
    if names := class_names(declared):
        if _item(declared) is not None:
            convert = partial(_several, len(names))
            return Column(name, Several(Label(names)), convert, "lists of classes")
        return Column(name, Label(names), partial(_class, len(names)), "classes")
    if isinstance(declared, Mapping) and declared.get("_type") in _ARRAYS:
        return _array(name, declared)
    return None


def _item(declared: Declared | None) -> Declared | None:
    """Return the feature of the items of a list; None for another feature."""
    if isinstance(declared, list) and len(declared) == 1:
        return declared[0] if isinstance(declared[0], dict) else None
    if isinstance(declared, Mapping) and declared.get("_type") in _LISTS:
        inner = declared.get("feature")
        return inner if isinstance(inner, dict) else None
    return None


def _class(count: int, cell: object) -> int:
    if not isinstance(cell, int) or not 0 <= cell < count:
        raise InvalidValue
    return cell


def _several(count: int, cell: object) -> list[int]:
    if cell is None:
        return []
    if not isinstance(cell, list):
        raise InvalidValue
    return [_class(count, item) for item in cell]


def _array(name: str, declared: Mapping[str, Any]) -> Column[object] | None:
    shape, dtype = declared.get("shape"), declared.get("dtype")
    sizes = shape if isinstance(shape, list) else []
    fixed = all(isinstance(size, int) and size > 0 for size in sizes)
    if not sizes or not fixed or dtype not in _DTYPES or len(sizes) > _MOST_DIMENSIONS:
        return None
    kind = _DTYPES[dtype]
    return Column(name, Tensor(kind, tuple(sizes)), partial(_flat, tuple(sizes), kind), f"arrays of {shape}")


def _flat(shape: tuple[int, ...], kind: str, cell: object) -> Value:
    items: list[object] = [cell]
    for size in shape:
        if not all(isinstance(item, list) and len(item) == size for item in items):
            raise InvalidValue
        items = [inner for item in items if isinstance(item, list) for inner in item]
    assert len(items) == prod(shape)
    return [_number(item, kind) for item in items]


def _number(item: object, kind: str) -> Scalar:
    if not isinstance(item, int | float):
        raise InvalidValue
    return real(float(item)) if kind == "float32" else whole(int(item))


_DTYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "float32",
    "float32": "float32",
    "float64": "float32",
    "bool": "bool",
}
"""Type of the numbers of an array -> that of the tensor."""
