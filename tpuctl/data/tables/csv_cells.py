"""Cells that are texts, as in CSV: which type a column of them has, and what a cell is of that type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from tpuctl.data.schema.classes import MISSING
from tpuctl.data.schema.features import TYPES
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole

_SHARE = 0.99
"""Of the cells that are numbers, a column is one of numbers: the others are bad, not the column."""
_EXACT = 1 << 24
"""Up to here a float of 32 bits holds every whole number."""
_WHOLE = re.compile(r"\s*-?(0|[1-9]\d{0,18})\s*")
"""Without leading zeros: 02139 is a code, not a number."""
_REAL = re.compile(r"\s*[+-]?(\d{1,18}|\d*\.\d+|\d+\.\d*|\d+(\.\d*)?[eE][+-]?\d+|\.\d+[eE][+-]?\d+|inf)\s*")
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def infer_column(name: str, cells: Sequence[str]) -> Column:
    """Return a column of the type that (nearly) all cells have: whole numbers, numbers, truth or text.

    Missing cells make whole numbers floats, missing ones NaN, as long as a float holds them exactly.
    """
    return given_column(name, _type_of([cell.strip().lower() for cell in cells]))


def given_column(name: str, kind: str) -> Column:
    """Return a column of a type in `features.TYPES`."""
    convert, holds = _CONVERTERS[kind]
    return Column(name, TYPES[kind], convert, holds)


def _type_of(cells: Sequence[str]) -> str:
    there = [cell for cell in cells if cell not in MISSING]
    wholes = [cell for cell in there if _WHOLE.fullmatch(cell)]
    reals = sum(1 for cell in there if _REAL.fullmatch(cell) and not _coded(cell))
    enough = max(len(there) * _SHARE, 1)
    if reals >= enough and len(wholes) < reals:
        return "float"
    if len(wholes) >= enough:
        gaps = len(there) < len(cells)
        return "float" if gaps and max(abs(int(cell)) for cell in wholes) <= _EXACT else "int"
    if sum(cell in ("true", "false") for cell in there) >= enough:
        return "bool"
    return "text"


def _coded(cell: str) -> bool:
    return cell.isdigit() and len(cell) > 1 and cell[0] == "0"


def _whole(cell: str) -> int:
    if "_" in cell:
        raise InvalidValue
    return whole(int(cell))


def _real(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        if cell.strip().lower() in MISSING:
            return math.nan
        raise
    if "_" in cell:
        raise InvalidValue
    return real(value)


def _truth(cell: str) -> bool:
    return _TRUTH[cell.strip().lower()]


def _text(cell: str) -> str:
    return cell


_CONVERTERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_whole, "whole numbers"),
    "float": (_real, "numbers"),
    "bool": (_truth, "true or false"),
    "text": (_text, "texts"),
    "bytes": (_text, "bytes"),
}
