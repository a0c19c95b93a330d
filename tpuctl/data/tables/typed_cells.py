"""Cells that have a type of their own, as in JSON and Parquet: a column's type, and what a cell becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from tpuctl.data.schema.features import TYPES, Feature, Tensor
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole
from tpuctl.errors import UsageError

_LISTS = {
    "int": Tensor("int64", (None,)),
    "float": Tensor("float32", (None,)),
    "text": Tensor("string", (None,)),
}
"""Type of the items -> feature of the list."""


def infer_column(name: str, cells: Sequence[Any]) -> Column:
    """Return a column of the type all cells have, or nearly all; raises UsageError for objects.

    Whole numbers among fractions are floats, and so are whole numbers where some are missing.
    """
    there = [cell for cell in cells if cell is not None]
    if lists := [cell for cell in there if isinstance(cell, list)]:
        items = {_kind(item) for cell in lists for item in cell} or {"float"}
        kind = "float" if items == {"int", "float"} else items.pop() if len(items) == 1 else "other"
        if kind not in _LISTS:
            raise _nested(name)
        return list_column(name, _LISTS[kind], kind)
    counts = dict.fromkeys(("int", "float", "bool", "text", "other"), 0)
    for cell in there:
        counts[_kind(cell)] += 1
    kind = max(counts, key=lambda one: counts[one]) if there else "text"
    if kind == "other":
        raise _nested(name)
    if kind == "int" and (counts["float"] or len(there) < len(cells)):
        kind = "float"
    return _column(name, kind)


def given_column(name: str, kind: str) -> Column:
    """Return a column of a type in `features.TYPES`; as text, a number, list or object is its JSON."""
    return _column(name, kind, _any_text if kind in ("text", "bytes") else None)


def list_column(name: str, feature: Feature, kind: str) -> Column:
    """Return a column of lists of `kind`; a missing one is an empty one."""
    convert = _CONVERTERS[kind][0]
    return Column(name, feature, lambda cell: _items(cell, convert), f"lists of {_CONVERTERS[kind][1]}")


def _column(name: str, kind: str, convert: Callable[[Any], Any] | None = None) -> Column:
    usual, holds = _CONVERTERS[kind]
    return Column(name, TYPES[kind], convert or usual, holds)


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "other")


def _items(cell: Any, convert: Callable[[Any], Any]) -> list[Any]:
    if cell is None:
        return []
    if not isinstance(cell, list) or None in cell:
        raise InvalidValue
    return [convert(item) for item in cell]


def _whole(cell: Any) -> int:
    if type(cell) is not int:
        raise InvalidValue
    return whole(cell)


def _real(cell: Any) -> float:
    if type(cell) is float:
        return real(cell)
    if cell is None:
        return math.nan
    if type(cell) is int or isinstance(cell, Decimal):
        return real(float(cell))
    raise InvalidValue


def _truth(cell: Any) -> bool:
    if type(cell) is not bool:
        raise InvalidValue
    return cell


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if type(cell) is not str:
        raise InvalidValue
    return cell


def _bytes(cell: Any) -> bytes:
    if cell is None:
        return b""
    if type(cell) is not bytes:
        raise InvalidValue
    return cell


def _any_text(cell: Any) -> str | bytes:
    if isinstance(cell, str | bytes):
        return cell
    if isinstance(cell, bool | int | float | list | dict):
        return msgspec.json.encode(cell)
    return "" if cell is None else str(cell)  # dates and decimals, of Parquet


def _nested(name: str) -> UsageError:
    return UsageError(
        f"The field '{name}' holds objects, or lists of different types.",
        hint=f"Plain values and lists of one type are taken; to have its JSON as text: --type {name}=text.",
        column=name,
    )


_KINDS = {int: "int", float: "float", bool: "bool", str: "text"}
_CONVERTERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_whole, "whole numbers"),
    "float": (_real, "numbers"),
    "bool": (_truth, "true or false"),
    "text": (_text, "texts"),
    "bytes": (_bytes, "bytes"),
}
