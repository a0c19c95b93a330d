"""Stores rows of values beside files, and turns them into typed fields: inferred, given, or labels."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.temp_files import RecordOffsets, TempFile
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

_SAMPLE, _SAMPLE_BYTES = 20_000, 8 << 20
"""Rows, and bytes of rows, from which the types are inferred."""
_BLOCK = 4096
"""Rows read at once."""

Facts = tuple[object, ...]
"""What a record has besides its row: texts and numbers."""
Cells = Sequence[object]
"""The cells of a row in the order of `Rows.names`; those behind the last are None."""


class Rows:
    """Rows of the same names in a temporary file, in the order of the records."""

    def __init__(self, source: str) -> None:
        """`source` is its name, for messages."""
        self.source = source
        self.names: dict[str, int] = {}
        """Name -> its place in a row."""
        self._file = TempFile()
        self._offsets = RecordOffsets()
        self._begins = [0]
        self._descriptor = -1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, facts: Facts, row: Mapping[str, object]) -> None:
        """Add the values of the next record, and what else it has."""
        for name in row:
            self.names.setdefault(name, len(self.names))
        cells = [row.get(name) for name in self.names]
        # marshal: our own bytes, and the only format of the standard library with every int and every float
        self._file.append(marshal.dumps((facts, cells)))  # type: ignore[arg-type]  # as JSON has them
        self._begins.append(self._file.size)
        self._count += 1
        if len(self._begins) >= _BLOCK:
            self._flush()

    def finish(self) -> None:
        """To be called once, after the last `add`."""
        self._flush()
        self._offsets.finish()
        self._descriptor = self._file.finish()

    def __iter__(self) -> Iterator[tuple[Facts, Cells]]:
        """Yield the facts and the row of each record."""
        return self._read(1)

    def close(self) -> None:
        """Give the space back."""
        self._file.close()
        self._offsets.close()

    def typed(self, options: Options, taken: Iterable[str]) -> TypedRows:
        """Return the type of each name; `taken` are the names of fields with files."""
        names = tuple(self.names)
        check_options(Options(options.types, options.label), (*names, *taken), f"'{self.source}'")
        label, named_by_user = label_column(options, names)
        collector = ClassCollector(label) if label and options.types.get(label, "label") == "label" else None
        if collector:
            collector.add(_cell(row, self.names[label]) for _, row in self)
        classes = collector.finish() if collector else None
        if classes and (classes.fractions or not classes.names):
            if named_by_user:
                raise _no_classes(label, self.source, "fractions" if classes.names else "nothing")
            classes = None
        step = max(len(self) // _SAMPLE, self._file.size // _SAMPLE_BYTES, 1)
        sample = [row for _, row in self._read(step)]
        columns: list[Column[object]] = []
        for name in names:
            if classes and name == label:
                columns.append(class_column(name, classes))
                continue
            column = self._column(name, options, sample)
            columns.append(target_column(column) if name == label else column)
        return TypedRows(Columns(columns, label), tuple(columns), label, classes.labels if classes else None)

    def _column(self, name: str, options: Options, sample: Sequence[Cells]) -> Column[object]:
        if name in options.types:
            return given_column(name, options.types[name])
        return infer_column(name, [_cell(row, self.names[name]) for row in sample])

    def _read(self, step: int) -> Iterator[tuple[Facts, Cells]]:
        """Yield one record of so many."""
        for start in range(0, self._count, _BLOCK * step):
            indices = np.arange(start, min(start + _BLOCK * step, self._count), step)
            for begin, end in self._offsets.spans(indices).tolist():
                yield marshal.loads(os.pread(self._descriptor, end - begin, begin))  # noqa: S302  as above

    def _flush(self) -> None:
        self._offsets.extend(np.array(self._begins, np.int64))
        self._begins = []


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

    def values(self, row: Cells) -> list[Value] | str:
        """Return the values of a row, or why it is bad."""
        cells = [*row, *(None for _ in self.converters[len(row) :])]
        if why := self.columns.record(cells).why:
            return why
        return [column.convert(cell) for column, cell in zip(self.converters, cells, strict=True)]


def _cell(row: Cells, place: int) -> object:
    return row[place] if place < len(row) else None


def _no_classes(label: str, source: str, what: str) -> UsageError:
    return UsageError(
        f"The column '{label}' of '{source}' holds {what}: they are no classes.",
        hint=f"To learn numbers, give its type: --label {label} --type {label}=float.",
        column=label,
    )
