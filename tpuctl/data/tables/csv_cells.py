"""Infers a CSV column's type from its cells, which are texts, and converts the cells."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from tpuctl.data.schema.classes import MISSING
from tpuctl.data.schema.features import TYPES
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole
from tpuctl.data.tfrecord.example_encoding import Value

_SHARE = 0.99
"""Share of cells that decides on the type of a column: the records of the others are bad."""
_EXACT = 1 << 24
"""Up to here a float of 32 bits holds every whole number."""
_WHOLE = re.compile(r"\s*-?(0|[1-9]\d{0,18})\s*")
"""Without leading zeros: 02139 is a code, not a number."""
_REAL = re.compile(r"\s*[+-]?(\d{1,18}|\d*\.\d+|\d+\.\d*|\d+(\.\d*)?[eE][+-]?\d+|\.\d+[eE][+-]?\d+|inf)\s*")
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def infer_column(name: str, cells: Sequence[str]) -> Column[str]:
    """Return a column of the type that (nearly) all cells have: whole numbers, numbers, truth or text.

    Whole numbers with missing cells become floats, if a float holds them exactly; a missing one is NaN.
    """
    return given_column(name, _type_of([cell.strip().lower() for cell in cells]))


def given_column(name: str, kind: str) -> Column[str]:
    """Return a column of a type in `features.TYPES`."""
    convert, holds = _CONVERTERS[kind]
    return Column(name, TYPES[kind], convert, holds)


def _type_of(cells: Sequence[str]) -> str:
    present = [cell for cell in cells if cell not in MISSING]
    wholes = [cell for cell in present if _WHOLE.fullmatch(cell)]
    reals = sum(1 for cell in present if _REAL.fullmatch(cell) and not _is_code(cell))
    enough = max(len(present) * _SHARE, 1)
    if reals >= enough and len(wholes) < reals:
        return "float"
    if len(wholes) >= enough:
        gaps = len(present) < len(cells)
        return "float" if gaps and max(abs(int(cell)) for cell in wholes) <= _EXACT else "int"
    if sum(cell in ("true", "false") for cell in present) >= enough:
        return "bool"
    return "text"


def _is_code(cell: str) -> bool:
    """Tell whether digits are no number: 02139."""
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


_CONVERTERS: dict[str, tuple[Callable[[str], Value], str]] = {
    "int": (_whole, "whole numbers"),
    "float": (_real, "numbers"),
    "bool": (_truth, "true or false"),
    "text": (_text, "texts"),
    "bytes": (_text, "bytes"),
}
