"""Reads rows with named columns as a source: the shared part of CSV and JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.rows import Rows
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.classes import ClassCollector, Classes, learn_numbers
from tpuctl.data.schema.features import Feature, Tensor
from tpuctl.data.source import (
    Blocks,
    Indices,
    Observations,
    Records,
    ScanProgress,
    Source,
    single_records,
)
from tpuctl.data.tables.columns import (
    Cell,
    Column,
    Columns,
    check_options,
    class_column,
    label_column,
    target_column,
)
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.texts import Texts
from tpuctl.errors import UsageError

_FEWEST = 16
"""Rows from which on columns at once are faster than one row after the other."""
_ENCODED, _ENCODED_BYTES = 8192, 4 << 20
"""Rows that are encoded at once, and about how many bytes."""
_FIRST_ENCODED = 256
"""Rows that are encoded at once while the size of a record is not known."""
_MEASURED = 2000
"""Records that are encoded to estimate the size of all."""

Parsed: TypeAlias = Sequence[Cell] | str
"""The cells of a row in the order of the columns, or what is wrong with it: `is not UTF-8`."""


class Dialect(NamedTuple, Generic[Cell]):
    """How the cells of a table are written."""

    kind: str
    names: tuple[str, ...]
    """Of the columns."""
    parse: Callable[[Sequence[bytes]], Sequence[Parsed[Cell]]]
    infer: Callable[[str, Any], Column[Cell]]
    """Return a column from its name and some of its cells: a sequence, or Texts where there is a `split`."""
    given: Callable[[str, str], Column[Cell]]
    """Return a column from its name and its type, of those in `features.TYPES`."""
    split: Callable[[Sequence[bytes]], Sequence[Texts] | None] | None = None
    """Return the cells of each column of many rows; None where the rows are better parsed one by one."""


class TableSource(Source, Generic[Cell]):
    """Rows of a text format; each becomes the record of its cells."""

    def __init__(
        self, rows: Rows, dialect: Dialect[Cell], columns: Columns[Cell], labels: NDArray[np.int32] | None
    ) -> None:
        self._rows = rows
        self._parse = dialect.parse
        self._split = dialect.split
        self._columns = columns
        self._lists = _lists(columns.features)
        self._encoded = _FIRST_ENCODED
        super().__init__(
            kind=dialect.kind,
            origin=rows.files,
            features=columns.features,
            supervised=columns.supervised,
            labels=labels,
            parts=rows.parts(self._measured()),
        )
        mean = sum(part.size for part in self.parts) // len(rows) + 1
        self._encoded = min(max(_ENCODED_BYTES // mean, 16), _ENCODED)

    def read(self, indices: Indices, observations: Observations) -> Records:
        return single_records(self.blocks(indices, observations))

    def blocks(self, indices: Indices, observations: Observations) -> Blocks:
        for batch in self._rows.batches(indices):
            order = np.argsort(batch)
            places = np.empty(len(batch), np.int64)
            places[order] = np.arange(len(batch))
            rows = self._rows.read_sorted(batch[order])
            cells = self._split(rows) if self._split and len(rows) >= _FEWEST else None
            for first in range(0, len(batch), self._encoded):
                chosen, numbers = places[first : first + self._encoded], batch[first : first + self._encoded]
                frames = self._frames(numbers, cells, chosen)
                if frames is None:
                    lines = [rows[place] for place in chosen.tolist()]
                    yield from self._by_rows(numbers, lines, observations)
                else:
                    yield frames

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        """Return the features; lists that all had the same length have it in their shape."""
        features = dict(self.features)
        for name, _ in self._lists:
            feature, length = features[name], observations.only_number(name)
            if isinstance(feature, Tensor) and length:
                features[name] = Tensor(feature.dtype, (length,))
        return features

    def close(self) -> None:
        self._rows.close()

    def _frames(self, indices: Indices, cells: Sequence[Texts] | None, places: Indices) -> Frames | None:
        """Return all records, where each is as usual; `places` says which cells are those of an index."""
        if cells is None:
            return None
        classes = None if self.labels is None else self.labels[indices].astype(np.int64)
        return self._columns.frames([texts.chosen(places) for texts in cells], Texts.strings, classes)

    def _by_rows(self, indices: Indices, lines: Sequence[bytes], observations: Observations) -> Records:
        parsed = self._parse(lines)
        rows = [row for row in parsed if not isinstance(row, str)]
        examples = self._columns.examples(rows) if len(rows) == len(indices) else None
        if examples is None:
            yield from self._one_by_one(indices, parsed, observations)
            return
        self._note_lengths(rows, observations)
        yield from examples

    def _one_by_one(
        self, indices: Indices, parsed: Sequence[Parsed[Cell]], observations: Observations
    ) -> Records:
        for index, row in zip(indices.tolist(), parsed, strict=True):
            if isinstance(row, str):
                yield self._bad(index, row)
                continue
            example, why, hint = self._columns.record(row)
            if why:
                yield self._bad(index, why, hint)
                continue
            self._note_lengths([row], observations)
            yield example

    def _note_lengths(self, rows: Sequence[Sequence[Cell]], observations: Observations) -> None:
        for name, place in self._lists:
            for row in rows:
                cell = row[place]
                observations.note(name, len(cell) if isinstance(cell, list) else 0)

    def _bad(self, index: int, why: str, hint: str = "") -> BadRecord:
        file = self._rows.file_of(index)
        self._rows.files.unchanged(file)
        return BadRecord(self._rows.files.name(file), why, self._rows.line(index), hint)

    def _measured(self) -> dict[int, int]:
        """Return the sizes of the examples of some records, by index."""
        sample = self._rows.sample()
        chosen = sample[:: max(len(sample) // _MEASURED, 1)]
        records = zip(chosen.tolist(), self.read(chosen, Observations()), strict=True)
        return {index: len(record) for index, record in records if isinstance(record, bytes)}


def read_table(
    rows: Rows, dialect: Dialect[Cell], options: Options, name: str, progress: ScanProgress
) -> TableSource[Cell]:
    """Return the table with its types inferred, or as `options` give them; raises UsageError.

    `name` is the source's in messages: `people.csv`.
    """
    source = f"'{name}'"
    if not len(rows):
        raise UsageError(f"{source} has no records.", hint="Give a source with some.", file=name)
    check_options(options, dialect.names, source)
    label, named_by_user = label_column(options, dialect.names)
    classes = None
    if label and options.types.get(label, "label") == "label":
        classes = _classes(rows, dialect, label, progress)
    if classes and (classes.fractions or not classes.names):
        if named_by_user:
            raise _no_classes(label, classes, source)
        classes = None
    columns = Columns(_columns(rows, dialect, options, label, classes), label)
    return TableSource(rows, dialect, columns, classes.labels if classes else None)


def _columns(
    rows: Rows, dialect: Dialect[Cell], options: Options, label: str, classes: Classes | None
) -> list[Column[Cell]]:
    sample = rows.read(rows.sample())
    texts = dialect.split(sample) if dialect.split else None
    cells = [] if texts else [row for row in dialect.parse(sample) if not isinstance(row, str)]
    columns: list[Column[Cell]] = []
    for place, name in enumerate(dialect.names):
        if classes and name == label:
            columns.append(class_column(name, classes))
            continue
        if name in options.types:
            column = dialect.given(name, options.types[name])
        else:
            column = dialect.infer(name, texts[place] if texts else [row[place] for row in cells])
        columns.append(target_column(column) if name == label else column)
    return columns


def _classes(rows: Rows, dialect: Dialect[Cell], label: str, progress: ScanProgress) -> Classes:
    place, collector, scanned = dialect.names.index(label), ClassCollector(label), 0
    for batch in rows.in_order():
        cells = dialect.split(batch) if dialect.split else None
        if cells:
            texts, ranks = cells[place].distinct()
            collector.add_ranked([text.decode() for text in texts], ranks)
        else:
            collector.add(None if isinstance(row, str) else row[place] for row in dialect.parse(batch))
        scanned += len(batch)
        progress(scanned, len(rows))
    return collector.finish()


def _no_classes(label: str, classes: Classes, source: str) -> UsageError:
    if not classes.names:
        return UsageError(f"The column '{label}' of {source} is empty.", hint="Name another with --label.")
    return UsageError(
        f"The column '{label}' of {source} holds fractions, such as {classes.names[0]}: they are no classes.",
        hint=learn_numbers(label),
        column=label,
    )


def _lists(features: Mapping[str, Feature]) -> list[tuple[str, int]]:
    """Return name and place of the fields that are lists of any length."""
    return [
        (name, place)
        for place, (name, feature) in enumerate(features.items())
        if isinstance(feature, Tensor) and feature.shape == (None,)
    ]
