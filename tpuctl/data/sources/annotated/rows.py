"""Turns rows of values beside files into typed fields: inferred, given, or labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.options import Options
from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.schema.features import Feature
from tpuctl.data.tables.columns import (
    Column,
    Columns,
    check_options,
    class_column,
    label_column,
    target_column,
)
from tpuctl.data.tables.typed_cells import given_column, infer_column
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.errors import UsageError

_SAMPLE = 20_000
"""Rows from which the types are inferred."""


@dataclass
class Rows:
    """Rows of the same names, in the order of the records; a row that lacks one has None there."""

    source: str
    """Name of the source, for messages."""
    names: dict[str, None] = field(default_factory=dict)
    rows: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, row: Mapping[str, object]) -> None:
        """Add the values of the next record."""
        self.names |= dict.fromkeys(row)
        self.rows.append(row)

    def typed(self, options: Options, taken: Iterable[str]) -> TypedRows:
        """Return the rows with a type for each name; `taken` are those of the fields with files."""
        names = tuple(self.names)
        check_options(Options(options.types, options.label), (*names, *taken), f"'{self.source}'")
        label, named_by_user = label_column(options, names)
        collector = ClassCollector(label) if label and options.types.get(label, "label") == "label" else None
        if collector:
            collector.add(row.get(label) for row in self.rows)
        classes = collector.finish() if collector else None
        if classes and (classes.fractions or not classes.names):
            if named_by_user:
                raise _no_classes(label, self.source, "fractions" if classes.names else "nothing")
            classes = None
        columns: list[Column[object]] = []
        for name in names:
            if classes and name == label:
                columns.append(class_column(name, classes))
                continue
            column = self._column(name, options)
            columns.append(target_column(column) if name == label else column)
        return TypedRows(Columns(columns, label), tuple(columns), label, classes.labels if classes else None)

    def _column(self, name: str, options: Options) -> Column[object]:
        if name in options.types:
            return given_column(name, options.types[name])
        step = max(len(self.rows) // _SAMPLE, 1)
        return infer_column(name, [row.get(name) for row in self.rows[::step]])


@dataclass(frozen=True)
class TypedRows:
    """How the values of a row become those of a record."""

    columns: Columns[object]
    converters: tuple[Column[object], ...]
    label: str
    labels: NDArray[np.integer] | None

    @property
    def features(self) -> Mapping[str, Feature]:
        """The feature of each field."""
        return self.columns.features

    def values(self, row: Mapping[str, object]) -> list[Value] | str:
        """Return the values of a row, or why it is bad."""
        cells = [row.get(column.name) for column in self.converters]
        if why := self.columns.record(cells).why:
            return why
        return [column.convert(cell) for column, cell in zip(self.converters, cells, strict=True)]


def _no_classes(label: str, source: str, what: str) -> UsageError:
    return UsageError(
        f"The column '{label}' of '{source}' holds {what}: they are no classes.",
        hint=f"To learn numbers, give its type: --label {label} --type {label}=float.",
        column=label,
    )
