"""Infers a column's type from typed cells (JSON, Parquet), and converts the cells.

- Converts many cells of a text column at once, to exactly the values that they have one by one.

  Plain digits of all rows are computed together; a cell written in another way is converted by itself.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.features import TYPES, Feature, Tensor
from tpuctl.data.tables.columns import Column, InvalidValue, real, whole
from tpuctl.data.tfrecord.example_encoding import Scalar
from tpuctl.data.tfrecord.texts import Bytes, Texts, windows
from tpuctl.errors import UsageError

_MINUS, _POINT, _ZERO = b"-.0"
_DIGITS = 18
"""Decimal digits that any integer of 64 bits has place for."""
_EXACT_DIGITS = 15
"""The same of a float of 64 bits, which is faster to compute with."""
_MOST_CUT = 8
"""Digits after these that do not change a number of 32 bits."""
_EXACT = 1 << 53
"""Up to here a float of 64 bits holds every whole number."""
_SLACK = 2.0**-50
"""More than what three roundings to 64 bits and the digits cut off can change, as a share."""
_BEGINS_WORD = np.isin(np.arange(256), [*set(b"abcdeghjklmopqrsuvwxyzABCDEGHJKLMOPQRSUVWXYZ")])
"""Letters with which no number, no truth and no missing value begins: not those of inf, true, false, nan."""
_TENS = 10.0 ** np.arange(_DIGITS + 1)


def whole_numbers(texts: Texts, convert: Callable[[str], int]) -> NDArray[np.int64]:
    """Return the value of each cell; raises what `convert` raises."""
    digits = _Digits.of(texts)
    simple = (texts.sizes <= _DIGITS) & (texts.sizes > digits.negative) & ~digits.others.any(axis=0)
    values = digits.number().astype(np.int64)
    _complete(values, simple, digits, texts, convert)
    return values


def real_numbers(texts: Texts, convert: Callable[[str], float]) -> NDArray[np.float32]:
    """Return the value of each cell, rounded as a float of 64 bits is; raises what `convert` raises.

    Digits and a point are a whole number divided by a power of ten. Where either is not exact, the rounding
    to 32 bits is certain unless it is another one for a number a little smaller or larger.
    """
    shorter, cut = _cut(texts)
    digits = _Digits.of(shorter)
    points = digits.take_points()
    count = points.sum(axis=0, dtype=np.int64)
    simple = ~digits.others.any(axis=0) & (count <= 1) & (shorter.sizes > digits.negative + count)
    simple &= (shorter.sizes <= _DIGITS) & ((cut == 0) | ((cut > 0) & (count == 1)))
    after = np.logical_or.accumulate(points, axis=0)[:-1].sum(axis=0, dtype=np.int64)
    mantissa = digits.number()
    values = mantissa / _TENS[after]
    inexact = np.flatnonzero((mantissa > _EXACT) | (cut != 0))
    if len(inexact):
        simple[inexact] &= _is_certain(values[inexact]) & (mantissa[inexact] >= _EXACT >> 1)
    _complete(values, simple, digits, texts, convert)
    with np.errstate(over="ignore"):  # infinity is one
        rounded: NDArray[np.float32] = values.astype(np.float32)
    return rounded


def _complete(
    values: NDArray[Any],
    simple: NDArray[np.bool_],
    digits: _Digits,
    texts: Texts,
    convert: Callable[[str], float],
) -> None:
    """Set the signs, and the values of the cells that are not simple."""
    np.negative(values, out=values, where=digits.negative)
    others = np.flatnonzero(~simple)
    if len(others):
        values[others] = [convert(text) for text in texts.chosen(others).strings()]


def by_distinct(texts: Texts, convert: Callable[[str], int]) -> NDArray[np.int64]:
    """Return the value of each cell where most are the same, as in a category."""
    cells, ranks = texts.distinct()
    values: NDArray[np.int64] = np.array([convert(cell.decode()) for cell in cells], np.int64)[ranks]
    return values


@dataclass(frozen=True)
class PlainCells:
    """Which cells are surely numbers or words, for the inference of a type."""

    wholes: NDArray[np.int64]
    """The whole numbers, without their signs."""
    fractions: int
    words: int
    others: NDArray[np.bool_]
    """Which cells are written in another way."""


def plain_cells(texts: Texts) -> PlainCells:
    """Return what is plainly a number or a word: digits without a zero before them, or with one point."""
    texts = texts.with_margins()
    digits = _Digits.of(texts)
    points = digits.take_points()
    count = points.sum(axis=0, dtype=np.int64)
    lengths = texts.sizes - digits.negative
    numbers = ~digits.others.any(axis=0) & (texts.sizes <= _DIGITS) & (lengths > count) & (count <= 1)
    wholes = numbers & (count == 0)
    wholes &= (lengths == 1) | (texts.data[texts.begins + digits.negative] != _ZERO)
    words = (texts.sizes > 0) & _BEGINS_WORD[texts.data[texts.begins]]
    fractions = numbers & (count == 1)
    values = digits.number()[wholes].astype(np.int64)
    others = ~(wholes | fractions | words)
    return PlainCells(values, int(fractions.sum()), int(words.sum()), others)


@dataclass(frozen=True)
class _Digits:
    """The last characters of each cell as digits, a row for each place, a column for each cell."""

    values: Bytes
    """Zero before the first digit, and where there is no digit."""
    factors: Bytes
    """By how much a digit makes the number before it larger: 10, or 1 where there is no digit."""
    others: NDArray[np.bool_]
    """Which characters are no digits; those before the first are none."""
    negative: NDArray[np.bool_]
    """Which cells begin with a minus sign."""

    @classmethod
    def of(cls, texts: Texts) -> _Digits:
        data, begins, sizes = texts.with_margins()
        width = min(max(int(sizes.max(initial=1)), 1), _DIGITS)
        rows = windows(data, width)[begins + sizes - width].view(np.uint8).reshape(-1, width)
        negative = (data[begins] == _MINUS) & (sizes > 0)
        lengths = np.minimum(sizes, width) - (negative & (sizes <= width))
        before = np.arange(width, dtype=np.int8)[:, None] < (width - lengths).astype(np.int8)
        digits = np.ascontiguousarray(rows.T) - np.uint8(_ZERO)
        digits[before] = 0
        return cls(digits, np.full_like(digits, 10), digits > 9, negative)

    def take_points(self) -> NDArray[np.bool_]:
        """Return which characters are points, which from then on count as nothing at all."""
        points: NDArray[np.bool_] = self.values == np.uint8((_POINT - _ZERO) % 256)
        self.values[points], self.factors[points], self.others[points] = 0, 1, False
        return points

    def number(self) -> NDArray[np.float64] | NDArray[np.int64]:
        """Return the number that the digits of each cell are."""
        number: NDArray[np.float64] | NDArray[np.int64] = np.zeros(self.values.shape[1])
        if len(self.values) > _EXACT_DIGITS:
            number = number.astype(np.int64)
        for factors, digits in zip(self.factors, self.values, strict=True):
            number *= factors
            number += digits
        return number


def _cut(texts: Texts) -> tuple[Texts, NDArray[np.int64]]:
    """Return the cells without digits beyond the first 18 characters, and how many were cut off; -1 where
    what was cut off is more than digits."""
    cut = np.maximum(texts.sizes - _DIGITS, 0)
    if not cut.any():
        return texts, cut
    longer = np.flatnonzero(cut)
    tails = Texts(texts.data, texts.begins[longer] + _DIGITS, np.minimum(cut[longer], _MOST_CUT))
    digits = _Digits.of(tails)
    only_digits = ~digits.others.any(axis=0) & ~digits.negative
    cut[longer] = np.where(only_digits & (cut[longer] <= _MOST_CUT), cut[longer], -1)
    return Texts(texts.data, texts.begins, np.minimum(texts.sizes, _DIGITS)), cut


def _is_certain(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    lower, upper = (values * (1 - _SLACK)).astype(np.float32), (values * (1 + _SLACK)).astype(np.float32)
    certain: NDArray[np.bool_] = lower == upper
    return certain


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
