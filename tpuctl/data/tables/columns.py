"""The columns of a table: their types, inferred or given, and what a cell becomes in the record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tpuctl.data.options import Options
from tpuctl.data.schema.classes import MISSING
from tpuctl.data.schema.features import TYPES, Feature, Label, Tensor, example_kind
from tpuctl.data.tfrecord.example_encoding import Encoder
from tpuctl.errors import UsageError, nearest

LABEL_NAMES = ("label", "class")
"""A column of this name is the class where nothing else is said, unless it holds fractions."""
_MOST_FLOAT = 3.4028235677973366e38
"""The first float that does not round to one of 32 bits."""


class InvalidValue(ValueError):
    """A cell that its column cannot hold; the text completes `which holds ...`."""


class Column(NamedTuple):
    """One column, and how a cell of it becomes a value for the `Encoder`."""

    name: str
    feature: Feature
    convert: Callable[[Any], Any]
    """Raises ValueError, TypeError or KeyError for a cell that does not fit."""
    holds: str
    """`whole numbers`: for the user."""


class Record(NamedTuple):
    """What a row became: a serialised example, or why there is none, and a hint."""

    example: bytes
    why: str = ""
    hint: str = ""


class Columns:
    """The columns in the order of the cells in a row."""

    def __init__(self, columns: Sequence[Column], target: str) -> None:
        """`target` is the name of the column that is to be learnt, empty if none is known."""
        self.features: Mapping[str, Feature] = {one.name: one.feature for one in columns}
        self.supervised = _supervised([one.name for one in columns], target)
        self._columns = tuple(columns)
        self._target = target
        self._converters = tuple(one.convert for one in columns)
        self._encoder = Encoder({one.name: example_kind(one.feature) for one in columns})

    def record(self, cells: Sequence[Any]) -> Record:
        """Return the example of a row that has a cell for each column."""
        try:
            values = [convert(cell) for convert, cell in zip(self._converters, cells, strict=True)]
        except (ValueError, TypeError, KeyError, AttributeError):
            return self._misfit(cells)
        return Record(self._encoder.encode(values))

    def examples(self, rows: Sequence[Sequence[Any]]) -> list[bytes] | None:
        """Return the examples of many rows, a column at a time, which is faster; None if any does not fit."""
        columns = zip(*rows, strict=True)
        try:
            values = [[*map(one, cells)] for one, cells in zip(self._converters, columns, strict=True)]
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return self._encoder.encode_all(values)

    def _misfit(self, cells: Sequence[Any]) -> Record:
        for column, cell in zip(self._columns, cells, strict=True):
            try:
                column.convert(cell)
            except (ValueError, TypeError, KeyError, AttributeError):
                return _explained(column, cell)
        raise AssertionError("every cell fits")


def check_options(options: Options, names: Sequence[str], what: str) -> None:
    """Raise UsageError for options that a table with these columns cannot follow."""
    if options.resize:
        raise UsageError(f"{what} has no images to bring to one size.", hint="Leave --resize out.")
    wanted = {**options.types, **({options.label: "label"} if options.label else {})}
    for name in wanted:
        if name not in names:
            close = nearest(name, names)
            raise UsageError(
                f"{what} has no column '{name}'.",
                hint=f"Did you mean {close[0]}?" if close else f"It has {', '.join(names[:20])}.",
                column=name,
            )
    for name, kind in options.types.items():
        if kind != "label" and kind not in TYPES:
            raise UsageError(
                f"'{kind}' is not a type, for the column '{name}'.",
                hint=f"One of {', '.join((*TYPES, 'label'))}.",
                type=kind,
            )
    if len(found := [name for name, kind in options.types.items() if kind == "label"]) > 1:
        raise UsageError(
            f"{found[0]} and {found[1]} cannot both be the label.", hint="Give one of them another type."
        )


def label_column(options: Options, names: Iterable[str]) -> tuple[str, bool]:
    """Return the name of the column that is the class, empty if none, and whether the user said so."""
    given = [options.label] if options.label else []
    given += [name for name, kind in options.types.items() if kind == "label"]
    if given:
        return given[0], True
    lower = {name.lower(): name for name in reversed(list(names)) if name not in options.types}
    return next((lower[name] for name in LABEL_NAMES if name in lower), ""), False


def whole(value: int) -> int:
    """Return a whole number that 64 bits hold; raises InvalidValue."""
    if -(1 << 63) <= value < 1 << 63:
        return value
    raise InvalidValue


def real(value: float) -> float:
    """Return a number that a float of 32 bits holds, infinity and NaN too; raises InvalidValue."""
    if -_MOST_FLOAT < value < _MOST_FLOAT or not math.isfinite(value):
        return value
    raise InvalidValue


def without_nan(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a conversion for a target: not a number is a misfit."""

    def checked(cell: Any) -> Any:
        value = convert(cell)
        if value != value:
            raise InvalidValue
        return value

    return checked


def _supervised(names: Sequence[str], target: str) -> tuple[str, str] | None:
    others = [name for name in names if name != target]
    return (others[0], target) if target and len(others) == 1 else None


def _explained(column: Column, cell: Any) -> Record:
    shown = "bytes" if isinstance(cell, bytes | dict) else "null" if cell is None else str(cell)
    shown = f"{shown[:37]}..." if len(shown) > 40 else shown
    missing = cell is None or shown.strip().lower() in MISSING
    if isinstance(column.feature, Label):
        why = "no label" if missing else f"the label '{shown}', which is no class,"
        return Record(b"", f"has {why} in the column '{column.name}'")
    what = "nothing" if cell is None or not shown.strip() else f"'{shown}'"
    why = f"has {what} in the column '{column.name}', which holds {column.holds}"
    number = isinstance(column.feature, Tensor) and "int" in column.feature.dtype
    kind = "float" if number and (missing or _is_real(shown)) else "text"
    return Record(b"", why, f"Give --type {column.name}={kind}")


def _is_real(text: str) -> bool:
    try:
        return math.isfinite(real(float(text)))
    except ValueError:
        return False
