"""Infers a CSV column's type from its cells, which are texts, and converts the cells."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tpuctl.data.schema.classes import MISSING
from tpuctl.data.schema.features import TYPES
from tpuctl.data.tables.cells import by_distinct, plain_cells, real_numbers, whole_numbers
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole
from tpuctl.data.tfrecord.example_encoding import Value, Values
from tpuctl.data.tfrecord.texts import Texts

_SHARE = 0.99
"""Share of cells that decides on the type of a column: the records of the others are bad."""
_FEWEST = 64
"""Cells from which on it is faster to look at all of them together."""
_EXACT = 1 << 24
"""Up to here a float of 32 bits holds every whole number."""
_WHOLE = re.compile(r"\s*-?(0|[1-9]\d{0,18})\s*")
"""Without leading zeros: 02139 is a code, not a number."""
_REAL = re.compile(r"\s*[+-]?(\d{1,18}|\d*\.\d+|\d+\.\d*|\d+(\.\d*)?[eE][+-]?\d+|\.\d+[eE][+-]?\d+|inf)\s*")
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def infer_column(name: str, cells: Sequence[str] | Texts) -> Column[str]:
    """Return a column of the type that (nearly) all cells have: whole numbers, numbers, truth or text.

    Whole numbers with missing cells become floats, if a float holds them exactly; a missing one is NaN.
    """
    counts = _count_texts(cells) if isinstance(cells, Texts) else _count(cells)
    return given_column(name, _type_of(counts))


def given_column(name: str, kind: str) -> Column[str]:
    """Return a column of a type in `features.TYPES`."""
    convert, convert_many, holds = _CONVERTERS[kind]
    return Column(name, TYPES[kind], convert, holds, convert_many)


class _Counts(NamedTuple):
    """How the cells of a column are written."""

    cells: int = 0
    present: int = 0
    wholes: int = 0
    reals: int = 0
    truths: int = 0
    largest: int = 0
    """Of the whole numbers, without their signs."""


def _type_of(counts: _Counts) -> str:
    enough = max(counts.present * _SHARE, 1)
    if counts.reals >= enough and counts.wholes < counts.reals:
        return "float"
    if counts.wholes >= enough:
        gaps = counts.present < counts.cells
        return "float" if gaps and counts.largest <= _EXACT else "int"
    return "bool" if counts.truths >= enough else "text"


def _count(cells: Iterable[str]) -> _Counts:
    texts = [cell.strip().lower() for cell in cells]
    present = [text for text in texts if text not in MISSING]
    wholes = [text for text in present if _WHOLE.fullmatch(text)]
    return _Counts(
        cells=len(texts),
        present=len(present),
        wholes=len(wholes),
        reals=sum(1 for text in present if _REAL.fullmatch(text) and not _is_code(text)),
        truths=sum(text in ("true", "false") for text in present),
        largest=max((abs(int(text)) for text in wholes), default=0),
    )


def _count_texts(texts: Texts) -> _Counts:
    """Return the counts of the cells: plain numbers and words at once, the others one by one."""
    if len(texts.sizes) < _FEWEST:
        return _count(texts.strings())
    plain = plain_cells(texts)
    others = _count(texts.chosen(np.flatnonzero(plain.others)).strings())
    numbers = len(plain.wholes) + plain.fractions
    return _Counts(
        cells=len(texts.sizes),
        present=others.present + numbers + plain.words,
        wholes=others.wholes + len(plain.wholes),
        reals=others.reals + numbers,
        truths=others.truths,
        largest=max(others.largest, int(plain.wholes.max(initial=0))),
    )


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


def _texts(cells: Texts) -> Texts:
    return cells


_CONVERTERS: dict[str, tuple[Callable[[str], Value], Callable[[Texts], Values], str]] = {
    "int": (_whole, lambda cells: whole_numbers(cells, _whole), "whole numbers"),
    "float": (_real, lambda cells: real_numbers(cells, _real), "numbers"),
    "bool": (_truth, lambda cells: by_distinct(cells, _truth), "true or false"),
    "text": (_text, _texts, "texts"),
    "bytes": (_text, _texts, "bytes"),
}
