"""Infers a column's type from typed cells (JSON, Parquet), and converts the cells."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from tpuctl.data.schema.features import TYPES, Feature, Tensor
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole
from tpuctl.data.tfrecord.example_encoding import Scalar
from tpuctl.errors import UsageError

_Convert = Callable[[object], Scalar]
_LISTS = {
    "int": Tensor("int64", (None,)),
    "float": Tensor("float32", (None,)),
    "text": Tensor("string", (None,)),
}
"""Type of the items -> feature of the list."""


def infer_column(name: str, cells: Sequence[object]) -> Column[object]:
    """Return a column of the type all cells have, or nearly all; raises UsageError for objects.

    Whole numbers among fractions are floats, and so are whole numbers where some are missing.
    """
    present = [cell for cell in cells if cell is not None]
    if lists := [cell for cell in present if isinstance(cell, list)]:
        items = {_kind(item) for cell in lists for item in cell} or {"float"}
        kind = "float" if items == {"int", "float"} else items.pop() if len(items) == 1 else "other"
        if kind not in _LISTS:
            raise _nested(name)
        return list_column(name, _LISTS[kind], kind)
    counts = dict.fromkeys(("int", "float", "bool", "text", "other"), 0)
    for cell in present:
        counts[_kind(cell)] += 1
    kind = max(counts, key=counts.__getitem__) if present else "text"
    if kind == "other":
        raise _nested(name)
    if kind == "int" and (counts["float"] or len(present) < len(cells)):
        kind = "float"
    return _column(name, kind)


def given_column(name: str, kind: str) -> Column[object]:
    """Return a column of a type in `features.TYPES`; as text, a number, list or object is its JSON."""
    return _column(name, kind, _any_text if kind in ("text", "bytes") else None)


def list_column(name: str, feature: Feature, kind: str) -> Column[object]:
    """Return a column of lists of `kind`; a missing one is an empty one."""
    convert = _CONVERTERS[kind][0]
    return Column(name, feature, lambda cell: _items(cell, convert), f"lists of {_CONVERTERS[kind][1]}")


def _column(name: str, kind: str, convert: _Convert | None = None) -> Column[object]:
    usual, holds = _CONVERTERS[kind]
    return Column(name, TYPES[kind], convert or usual, holds)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "other")


def _items(cell: object, convert: _Convert) -> list[Scalar]:
    if cell is None:
        return []
    if not isinstance(cell, list) or None in cell:
        raise InvalidValue
    return [convert(item) for item in cell]


def _whole(cell: object) -> int:
    if type(cell) is not int:
        raise InvalidValue
    return whole(cell)


def _real(cell: object) -> float:
    if type(cell) is float:
        return real(cell)
    if cell is None:
        return math.nan
    if type(cell) is int or isinstance(cell, Decimal):
        return real(float(cell))
    raise InvalidValue


def _truth(cell: object) -> bool:
    if type(cell) is not bool:
        raise InvalidValue
    return cell


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if type(cell) is not str:
        raise InvalidValue
    return cell


def _bytes(cell: object) -> bytes:
    if cell is None:
        return b""
    if type(cell) is not bytes:
        raise InvalidValue
    return cell


def _any_text(cell: object) -> str | bytes:
    if isinstance(cell, str | bytes):
        return cell
    if isinstance(cell, bool | int | float | list | dict):
        return msgspec.json.encode(cell)
    return "" if cell is None else str(cell)  # dates and decimals, of Parquet


def _nested(name: str) -> UsageError:
    return UsageError(
        f"The field '{name}' holds objects, or lists of different types.",
        hint="Give plain values or lists of one type; to have its JSON as text: "
        f"--type {shlex.quote(name)}=text.",
        column=name,
    )


_KINDS = {int: "int", float: "float", bool: "bool", str: "text"}
_CONVERTERS: dict[str, tuple[_Convert, str]] = {
    "int": (_whole, "whole numbers"),
    "float": (_real, "numbers"),
    "bool": (_truth, "true or false"),
    "text": (_text, "texts"),
    "bytes": (_bytes, "bytes"),
}
