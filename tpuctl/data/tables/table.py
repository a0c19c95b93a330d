"""Rows with named columns as a source: the part that CSV and JSON Lines have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.rows import Rows
from tpuctl.data.options import Options
from tpuctl.data.schema.classes import ClassCollector, Classes
from tpuctl.data.schema.features import Feature, Label, Tensor
from tpuctl.data.source import Indices, Observations, Part, Records, ScanProgress
from tpuctl.data.tables.columns import Column, Columns, check_options, label_column, without_nan
from tpuctl.errors import UsageError

_MEASURED = 2000
"""Records that are encoded to estimate the size of all."""

Parsed = Sequence[Any] | str
"""The cells of a row in the order of the columns, or what is wrong with it: `is not UTF-8`."""


class Dialect(NamedTuple):
    """How the cells of a table are written."""

    kind: str
    names: tuple[str, ...]
    """Of the columns."""
    parse: Callable[[Sequence[bytes]], Sequence[Parsed]]
    infer: Callable[[str, Sequence[Any]], Column]
    """Return a column from its name and some of its cells."""
    given: Callable[[str, str], Column]
    """Return a column from its name and its type, of those in `features.TYPES`."""


class TableSource:
    """Rows of a text format; each becomes the record of its cells."""

    exact = False

    def __init__(
        self, rows: Rows, dialect: Dialect, columns: Columns, labels: NDArray[np.int32] | None
    ) -> None:
        self.kind = dialect.kind
        self.features = columns.features
        self.supervised = columns.supervised
        self.labels = labels
        self.bad: Sequence[BadRecord] = rows.files.bad
        self.fingerprint = rows.files.listing.fingerprint
        self._rows = rows
        self._parse = dialect.parse
        self._columns = columns
        self._lists = _lists(columns.features)
        self.parts: tuple[Part, ...] = rows.parts(self._measured())

    def read(self, indices: Indices, seen: Observations) -> Records:
        for start in range(0, len(indices), self._rows.batch):
            some = indices[start : start + self._rows.batch]
            parsed = self._parse(self._rows.read(some))
            whole = [row for row in parsed if not isinstance(row, str)]
            examples = self._columns.examples(whole) if len(whole) == len(some) else None
            if examples is None:
                yield from self._one_by_one(some, parsed, seen)
                continue
            self._note_lengths(whole, seen)
            yield from examples

    def stamp(self, indices: Indices) -> bytes:
        return self._rows.files.stamp

    def check(self) -> None:
        self._rows.files.check()

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        """Return the features; lists that all had the same length have it in their shape."""
        found = dict(self.features)
        for name, _ in self._lists:
            feature, length = found[name], seen.only(name)
            if isinstance(feature, Tensor) and isinstance(length, int) and length:
                found[name] = Tensor(feature.dtype, (length,))
        return found

    def close(self) -> None:
        self._rows.close()

    def _one_by_one(self, indices: Indices, parsed: Sequence[Parsed], seen: Observations) -> Records:
        for index, row in zip(indices.tolist(), parsed, strict=True):
            if isinstance(row, str):
                yield self._bad(index, row)
                continue
            example, why, hint = self._columns.record(row)
            if why:
                yield self._bad(index, why, hint)
                continue
            self._note_lengths([row], seen)
            yield example

    def _note_lengths(self, rows: Sequence[Sequence[Any]], seen: Observations) -> None:
        for name, place in self._lists:
            for row in rows:
                seen.note(name, len(row[place] or ()))

    def _bad(self, index: int, why: str, hint: str = "") -> BadRecord:
        file = self._rows.file_of(index)
        self._rows.files.unchanged(file)
        return BadRecord(self._rows.files.name(file), why, self._rows.line(index), hint)

    def _measured(self) -> dict[int, int]:
        sample = self._rows.sample()
        some = sample[:: max(len(sample) // _MEASURED, 1)]
        records = zip(some.tolist(), self.read(some, Observations()), strict=True)
        return {index: len(record) for index, record in records if isinstance(record, bytes)}


def read_table(
    rows: Rows, dialect: Dialect, options: Options, what: str, progress: ScanProgress
) -> TableSource:
    """Return the table with its types inferred, or as `options` give them; raises UsageError.

    `what` is for messages: `'people.csv'`.
    """
    try:
        if not len(rows):
            raise UsageError(f"{what} has no records.", hint="Give a source with some.", file=what.strip("'"))
        check_options(options, dialect.names, what)
        label, said = label_column(options, dialect.names)
        classes = None
        if label and options.types.get(label, "label") == "label":
            classes = _classes(rows, dialect, label, progress)
        if classes and (classes.fractions or not classes.names):
            if said:
                raise _no_classes(label, classes, what)
            classes = None
        columns = _columns(rows, dialect, options, label, classes)
        return TableSource(rows, dialect, Columns(columns, label), classes.labels if classes else None)
    except BaseException:
        rows.close()
        raise


def _columns(
    rows: Rows, dialect: Dialect, options: Options, label: str, classes: Classes | None
) -> list[Column]:
    sample = [row for row in dialect.parse(rows.read(rows.sample())) if not isinstance(row, str)]
    found = []
    for place, name in enumerate(dialect.names):
        if classes and name == label:
            column = Column(name, Label(classes.names), classes.numbers.__getitem__, "classes")
        elif name in options.types:
            column = dialect.given(name, options.types[name])
        else:
            column = dialect.infer(name, [row[place] for row in sample])
        if name == label and not classes:
            column = column._replace(convert=without_nan(column.convert))
        found.append(column)
    return found


def _classes(rows: Rows, dialect: Dialect, label: str, progress: ScanProgress) -> Classes:
    place, gathering, done = dialect.names.index(label), ClassCollector(label), 0
    for some in rows.in_order():
        gathering.add(None if isinstance(row, str) else row[place] for row in dialect.parse(some))
        done += len(some)
        progress(done, len(rows))
    return gathering.finish()


def _no_classes(label: str, classes: Classes, what: str) -> UsageError:
    if not classes.names:
        return UsageError(f"The column '{label}' of {what} is empty.", hint="Name another with --label.")
    return UsageError(
        f"The column '{label}' of {what} holds fractions, such as {classes.names[0]}: they are no classes.",
        hint=f"To learn numbers, give its type: --label {label} --type {label}=float.",
        column=label,
    )


def _lists(features: Mapping[str, Feature]) -> list[tuple[str, int]]:
    return [
        (name, place)
        for place, (name, feature) in enumerate(features.items())
        if isinstance(feature, Tensor) and feature.shape == (None,)
    ]
