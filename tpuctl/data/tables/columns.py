"""Defines the columns of a table and the conversion of a cell; csv_cells.py infers the type of texts."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from tpuctl.data.options import Options
from tpuctl.data.schema.classes import MISSING, Classes
from tpuctl.data.schema.features import TYPES, Audio, Feature, Image, Label, Several, Tensor, example_kind
from tpuctl.data.source import Indices, supervised_pair
from tpuctl.data.tfrecord.example_encoding import ColumnEncoder, Encoder, Value, Values
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.texts import Texts
from tpuctl.errors import UsageError, nearest

LABEL_NAMES = ("label", "class")
"""A column of this name is the class unless the user names another, or it holds fractions."""
MOST_COLUMNS = 100_000
"""Columns that a table may have: each record holds the names of all of its fields."""
MOST_FLOAT = 3.4028235677973366e38
"""The first float that does not round to one of 32 bits."""
MISFITS = (ValueError, TypeError, KeyError, AttributeError)
"""What `Column.convert` raises for a cell that the column cannot hold."""

Cell = TypeVar("Cell")
"""Cells of a row: texts in CSV, any objects in JSON and Parquet."""


_MOST_CONVERTED = 1 << 26
"""Bytes that the cells of a column are converted to at once: a sound or an image may become very many."""


class InvalidValue(ValueError):
    """A value that its column or field cannot hold; the text, if any, completes a sentence about it."""


class Column(NamedTuple, Generic[Cell]):
    """One column, and the conversion of its cells to values for the `Encoder`."""

    name: str
    feature: Feature
    convert: Callable[[Cell], Value]
    """Raises ValueError, TypeError or KeyError for a cell that does not fit."""
    holds: str
    """`whole numbers`: for the user."""
    convert_many: Callable[[Any], Values] | None = None
    """Return the values of all cells, held as the reader holds a column; raises what `convert` raises."""


class Record(NamedTuple):
    """The result of converting a row: a serialised example, or why the row is bad, and a hint."""

    example: bytes
    why: str = ""
    hint: str = ""


class Columns(Generic[Cell]):
    """The columns in the order of the cells in a row."""

    def __init__(self, columns: Sequence[Column[Cell]], target: str) -> None:
        """`target` is the name of the column that is to be learnt, empty without one."""
        self.features: Mapping[str, Feature] = {column.name: column.feature for column in columns}
        self.supervised = supervised_pair([column.name for column in columns], target)
        self._columns = tuple(columns)
        self._target = target
        self._converters = tuple(column.convert for column in columns)
        self._kinds = {column.name: example_kind(column.feature) for column in columns}

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._kinds)

    @cached_property
    def _column_encoder(self) -> ColumnEncoder:
        return ColumnEncoder(self._kinds)

    def record(self, cells: Sequence[Cell]) -> Record:
        """Return the example of a row that has a cell for each column."""
        try:
            values = [convert(cell) for convert, cell in zip(self._converters, cells, strict=True)]
        except MISFITS:
            return self._misfit(cells)
        return Record(self._encoder.encode(values))

    def examples(self, rows: Sequence[Sequence[Cell]]) -> list[bytes] | None:
        """Return the examples of many rows, a column at a time, which is faster; None if any does not fit."""
        columns = zip(*rows, strict=True)
        try:
            values = [
                [*map(convert, cells)] for convert, cells in zip(self._converters, columns, strict=True)
            ]
        except MISFITS:
            return None
        return self._encoder.encode_all(values)

    def frames(
        self,
        cells: Sequence[Any],
        to_list: Callable[[Any], Sequence[Any]],
        classes: Indices | None,
    ) -> Frames | None:
        """Return the records of many rows, framed; None where a cell does not fit.

        `cells` are held as the reader holds a column, and `to_list` returns them one by one; `classes` are
        those of the rows in the target, where they are known.
        """
        values: list[Values] = []
        try:
            for column, held in zip(self._columns, cells, strict=True):
                if classes is not None and column.name == self._target:
                    values.append(_whole_classes(classes))
                elif column.convert_many:
                    values.append(column.convert_many(held))
                else:
                    values.append([*map(column.convert, to_list(held))])
        except MISFITS:
            return None
        return self._column_encoder.frames(values)

    def _misfit(self, cells: Sequence[Cell]) -> Record:
        for column, cell in zip(self._columns, cells, strict=True):
            try:
                column.convert(cell)
            except MISFITS as error:
                if isinstance(column.feature, Image | Audio):
                    noun = "an image" if isinstance(column.feature, Image) else "a sound"
                    return Record(b"", f"has {noun} in the column '{column.name}' which {error}")
                return _explained(column, cell)
        raise AssertionError("every cell fits")


def within_memory(values: Iterable[bytes]) -> list[bytes]:
    """Return values of a column; raises InvalidValue where they are too large to be held together."""
    held, size = list[bytes](), 0
    for value in values:
        held.append(value)
        size += len(value)
        if size > _MOST_CONVERTED and len(held) > 1:
            raise InvalidValue
    return held


def check_options(options: Options, names: Sequence[str], source: str, *, images: bool = False) -> None:
    """Raise UsageError for options that a table with these columns cannot follow; `source` is its name.

    `images` tells that it may have some, which is checked later.
    """
    if not images:
        check_no_images(options, source)
    for name in {**options.types, **({options.label: "label"} if options.label else {})}:
        if name not in names:
            close = nearest(name, names)
            raise UsageError(
                f"{source} has no column '{name}'.",
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
    labels = [name for name, kind in options.types.items() if kind == "label"]
    if len(labels) > 1:
        raise UsageError(
            f"{labels[0]} and {labels[1]} cannot both be the label.", hint="Give one of them another type."
        )


def check_no_images(options: Options, source: str) -> None:
    """Raise UsageError for options that only images can follow."""
    if options.resize:
        raise UsageError(f"{source} has no images to bring to one size.", hint="Run it without --resize.")
    if options.channels:
        raise UsageError(f"{source} has no images, which have channels.", hint="Run it without --channels.")


def check_width(count: int, source: str) -> None:
    """Raise UsageError for more than `MOST_COLUMNS` columns; `source` is the name of the file."""
    if count > MOST_COLUMNS:
        raise UsageError(
            f"'{source}' has {count} columns, and at most {MOST_COLUMNS} can be read.",
            hint="Save a wide table as an array of NumPy, whose records have one field.",
            file=source,
            columns=count,
        )


def label_column(options: Options, names: Iterable[str]) -> tuple[str, bool]:
    """Return the name of the column that is the class, empty if none, and whether the user named it."""
    chosen = [options.label] if options.label else []
    chosen += [name for name, kind in options.types.items() if kind == "label"]
    if chosen:
        return chosen[0], True
    lower = {name.lower(): name for name in reversed(list(names)) if name not in options.types}
    return next((lower[name] for name in LABEL_NAMES if name in lower), ""), False


def class_column(name: str, classes: Classes) -> Column[Cell]:
    """Return a column whose cells are the names or numbers of classes, or lists of them."""
    if classes.several:
        return Column(
            name, Several(Label(classes.names)), partial(_several, classes.numbers), "lists of classes"
        )
    return Column(name, Label(classes.names), classes.numbers.__getitem__, "classes")


def _several(numbers: Mapping[Hashable, int], cell: object) -> list[int]:
    """Return the numbers of the classes in a list; a missing one is an empty one."""
    if cell is None:
        return []
    if not isinstance(cell, list):
        raise InvalidValue
    return [numbers[item] for item in cell]


def target_column(column: Column[Cell]) -> Column[Cell]:
    """Return a column of numbers that are to be learnt: NaN, and so a missing cell, does not fit."""

    def checked(cell: Cell) -> Value:
        value = column.convert(cell)
        if value != value:
            raise InvalidValue
        return value

    many = column.convert_many

    def checked_many(cells: Any) -> Values:
        values = many(cells) if many else ()
        if isinstance(values, np.ndarray):
            missing = bool(np.isnan(values).any())
        else:
            missing = not isinstance(values, Texts) and any(value != value for value in values)
        if missing:
            raise InvalidValue
        return values

    return column._replace(convert=checked, convert_many=checked_many if many else None)


def whole(value: int) -> int:
    """Return a whole number that 64 bits hold; raises InvalidValue."""
    if -(1 << 63) <= value < 1 << 63:
        return value
    raise InvalidValue


def real(value: float) -> float:
    """Return a number that a float of 32 bits holds, infinity and NaN too; raises InvalidValue."""
    if -MOST_FLOAT < value < MOST_FLOAT or not math.isfinite(value):
        return value
    raise InvalidValue


def _whole_classes(classes: Indices) -> Indices:
    if (classes < 0).any():
        raise InvalidValue
    return classes


def _explained(column: Column[Cell], cell: Cell) -> Record:
    text = "bytes" if isinstance(cell, bytes | dict) else "null" if cell is None else str(cell)
    text = f"{text[:37]}..." if len(text) > 40 else text
    missing = cell is None or text.strip().lower() in MISSING
    if isinstance(column.feature, Label):
        why = "no label" if missing else f"the label '{text}', which is no class,"
        return Record(b"", f"has {why} in the column '{column.name}'")
    quoted = "nothing" if cell is None or not text.strip() else f"'{text}'"
    why = f"has {quoted} in the column '{column.name}', which holds {column.holds}"
    number = isinstance(column.feature, Tensor) and "int" in column.feature.dtype
    kind = "float" if number and (missing or _is_real(text)) else "text"
    return Record(b"", why, f"Give --type {shlex.quote(column.name)}={kind}")


def _is_real(text: str) -> bool:
    try:
        return math.isfinite(real(float(text)))
    except ValueError:
        return False
