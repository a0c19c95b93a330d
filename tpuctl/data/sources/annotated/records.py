"""Makes a source of records that are listed first: the files of each, and the values beside them.

- Where the records of annotated files come from: tables or annotations, and the files of each record.
- Offers records of files and of the values beside them, by index.
"""

from __future__ import annotations

import marshal
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import Folder, Listing
from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.files.temp_files import RecordOffsets, TempFile
from tpuctl.data.images.decoding import Ahead
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.classes import ClassCollector, learn_numbers
from tpuctl.data.schema.features import Feature, example_kinds
from tpuctl.data.source import (
    Indices,
    Observations,
    Origin,
    Part,
    Records,
    ScanProgress,
    Source,
    closed_on_error,
    supervised_pair,
)
from tpuctl.data.sources.annotated.fields import Content, MediaField, Pictures, ValueStore, unreadable_file
from tpuctl.data.sources.annotated.sounds import Sounds
from tpuctl.data.sources.names import PICTURES, SOUNDS
from tpuctl.data.tables.cells import given_column, infer_column
from tpuctl.data.tables.columns import (
    Column,
    Columns,
    check_options,
    class_column,
    label_column,
    target_column,
)
from tpuctl.data.tfrecord.example_encoding import Encoder, Value
from tpuctl.data.trees.tree import Entry
from tpuctl.errors import UsageError


@dataclass(frozen=True)
class MediaOrigin:
    """All files of a source, and which of them each record has."""

    files: SourceFiles
    tables: Sequence[int]
    """Numbers of the files that say something of others."""
    media: Sequence[Listing]
    """The files of each field, one for each record."""
    bad: Sequence[BadRecord]

    @property
    def fingerprint(self) -> str:
        """That of all files, whether a record has them or not."""
        return self.files.fingerprint

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of the records' files, or of the tables, was written to."""
        tables = self.files.listing.stamps[list(self.tables)].tobytes()
        return tables + b"".join(listing.stamp(indices) for listing in self.media)

    def check(self) -> None:
        """Raise UsageError (`changed`) if a file is new, removed or modified since the listing."""
        self.files.check()


def chosen(files: SourceFiles, numbers: Iterable[int]) -> Listing:
    """Return the listing of some of the files, in this order."""
    listing, folder = Listing(files.tree), None
    for number in numbers:
        file = files.listing.file(number)
        above, _, name = file.path.rpartition("/")
        if above != folder:
            listing.start(Folder(above, "", ""))
            folder = above
        listing.add(Entry(name, "file", file.size, file.stamp, checksum=file.checksum))
    return listing


_SAMPLE, _SAMPLE_BYTES = 20_000, 8 << 20
"""Rows, and bytes of rows, from which the types are inferred."""
_BLOCK = 4096
"""Rows read at once."""
Facts = tuple[object, ...]
"""What a record has besides its row: texts and numbers."""
Cells = Sequence[object]
"""The cells of a row in the order of `Rows.names`; those behind the last are None."""
MakeField = Callable[[str, Listing, Options, ScanProgress], MediaField]
MEDIA: dict[tuple[str, ...], tuple[str, MakeField]] = {
    PICTURES: ("image", Pictures),
    SOUNDS: ("audio", Sounds),
}
"""Endings of names -> the usual name of such a field, and what reads it."""


class _Good(NamedTuple):
    """The records that can be used, in the order in which they were listed."""

    files: dict[str, array[int]]
    """Field -> the number of the file of each."""
    records: array[int]
    splits: array[int]
    """The split of each, by its place in the order of all."""


class ListedRecord(NamedTuple):
    """A record before its values have types."""

    split: str
    files: Mapping[str, int]
    """Field -> number of its file."""
    row: Mapping[str, object]
    bad: BadRecord
    """What is said of it if it is bad: its file, line and unit; `why` is filled in."""


class Listed:
    """All records of a source, in a temporary file."""

    def __init__(self, kind: str, files: SourceFiles, tables: Sequence[int] = ()) -> None:
        """`tables` are the numbers of the files that say something of others."""
        self.kind = kind
        self.files = files
        self.tables = tables
        self.bad = list(files.bad)
        self._rows = Rows(files.tree.name)
        self._media: dict[str, MakeField] = {}
        self._splits: set[str] = set()
        self._in_none = ""  # the first record that is in no split

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: ListedRecord) -> None:
        """Add a record; raises UsageError where a field has files of several kinds."""
        for name, number in record.files.items():
            make = media_kind(self.files.name(number))[1]
            if self._media.setdefault(name, make) != make:
                raise UsageError(
                    f"'{self.files.name(number)}' is of another kind than the other files of '{name}'.",
                    hint="All files of a field are pictures, or all are sounds.",
                    file=self.files.name(number),
                )
        if not record.split and "" not in self._splits:
            self._in_none = record.bad.file
        self._splits.add(record.split)
        listed = record.bad
        facts = (record.split, dict(record.files), listed.file, listed.line, listed.unit)
        self._rows.add(facts, record.row)

    def close(self) -> None:
        """Give the space back."""
        self._rows.close()

    def source(self, options: Options, progress: ScanProgress) -> AnnotatedSource:
        """Return the records as a source; raises UsageError where there are none, or fields do not fit."""
        if self._in_none and len(self._splits) > 1:
            raise in_no_split(self._in_none)
        self._rows.finish()
        if both := next((name for name in self._rows.names if name in self._media), ""):
            raise UsageError(
                f"The column '{both}' has the name of a field of files.",
                hint="Rename the column.",
                column=both,
            )
        typed = self._rows.typed(options, self._media)
        store = ValueStore()
        with closed_on_error(store):
            good = self._good(typed, store)
            order = np.argsort(np.frombuffer(good.splits, np.int64), kind="stable")
            store.finish(order)
            listings = {
                name: chosen(self.files, map(numbers.__getitem__, order))
                for name, numbers in good.files.items()
            }
            fields = [
                self._media[name](name, listing, options, progress) for name, listing in listings.items()
            ]
            counts = np.bincount(np.frombuffer(good.splits, np.int64)).tolist()
            splits = [pair for pair in zip(sorted(self._splits), counts, strict=False) if pair[1]]
            labels = None
            if typed.labels is not None:  # in the order of all records
                labels = typed.labels[np.frombuffer(good.records, np.int64)[order]]
            pair = supervised_pair([*self._media, *typed.features], typed.label)
            table = Table(store, typed.features, splits, labels, pair)
            origin = MediaOrigin(self.files, self.tables, tuple(listings.values()), tuple(self.bad))
            return AnnotatedSource(self.kind, origin, fields, table)

    def _good(self, typed: TypedRows, store: ValueStore) -> _Good:
        """Return the records that can be used, and store their values; the others become bad."""
        ranks = {split: rank for rank, split in enumerate(sorted(self._splits))}
        good = _Good({name: array("q") for name in self._media}, array("q"), array("q"))
        for number, (facts, row) in enumerate(self._rows):
            split, files, file, line, unit = facts
            assert isinstance(split, str)
            assert isinstance(unit, str)
            assert isinstance(files, dict)
            assert isinstance(file, str)
            assert isinstance(line, int)
            lacking = next((name for name in self._media if name not in files), "")
            values = f"has no {lacking}" if lacking else typed.values(row)
            if isinstance(values, str):
                self.bad.append(BadRecord(file, values, line, unit=unit))
                continue
            store.add(values)
            good.records.append(number)
            good.splits.append(ranks[split])
            for name, numbers in good.files.items():
                numbers.append(files[name])
        if not good.records:
            raise self._empty()
        return good

    def _empty(self) -> UsageError:
        return UsageError(
            f"'{self.files.tree}' has no record that can be used.",
            hint=f"The first: {self.bad[0]}." if self.bad else "Check its files.",
            file=str(self.files.tree),
        )


def media_kind(name: str) -> tuple[str, MakeField]:
    """Return the usual name of the field of such a file, and what reads it; raises KeyError for another."""
    for suffixes, kind in MEDIA.items():
        if name.lower().endswith(suffixes):
            return kind
    raise KeyError(name)


def in_no_split(name: str) -> UsageError:
    """Return the error for a record in no split where others are in one."""
    return UsageError(
        f"'{name}' is in no split, and others are.",
        hint="Name all after their split, such as train and test, or none.",
        file=name,
    )


# Stores rows of values beside files, and turns them into typed fields: inferred, given, or labels.


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
        hint=learn_numbers(label),
        column=label,
    )


_OVERHEAD = 60
"""Bytes of a record besides its files and values, about."""

Judge = Callable[[Sequence[Content], Sequence[Value]], str]
"""Called with the contents and the values of a record; returns what is wrong with it, empty for nothing."""


class Table(NamedTuple):
    """The values beside the files."""

    values: ValueStore
    """Of each record those of `features`, in their order; what follows them is for `judge`."""
    features: Mapping[str, Feature]
    splits: Sequence[tuple[str, int]]
    """Each split and its number of records, in the order of the records."""
    labels: NDArray[np.integer] | None = None
    supervised: tuple[str, str] | None = None
    judge: Judge = lambda contents, values: ""


class AnnotatedSource(Source):
    """Records with files and values; the files of the first field are converted ahead."""

    def __init__(self, kind: str, origin: Origin, fields: Sequence[MediaField], table: Table) -> None:
        self._media = tuple(fields)
        self._table = table
        self._ahead = Ahead()
        self._width = len(example_kinds(table.features))
        kinds = example_kinds({**self._media_features(Observations()), **table.features})
        self._encoder = Encoder(kinds)
        pictures = next((field for field in fields if isinstance(field, Pictures)), None)
        super().__init__(
            kind=kind,
            origin=origin,
            features=self.final_features(Observations()),
            supervised=table.supervised,
            labels=table.labels,
            parts=tuple(self._parts()),
            images=pictures.report if pictures else None,
            bad_images=pictures.bad if pictures else (),
        )

    def read(self, indices: Indices, observations: Observations) -> Records:
        first, *others = self._media
        files = zip(indices.tolist(), first.listing.read_each(indices), strict=True)
        slow = ((index, data, first.slow(index)) for index, data in files)
        read = self._ahead.map(lambda index, data: _content(first, index, data), slow)
        rest = [_contents(field, indices) for field in others]
        values = self._table.values.read(indices)
        for (_, content), row, *contents in zip(read, values, *rest, strict=True):
            yield self._record((content, *contents), row, observations)

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        return {**self._media_features(observations), **self._table.features}

    def close(self) -> None:
        self._ahead.close()
        self._table.values.close()

    def _record(
        self, contents: Sequence[Content | BadRecord], row: Sequence[Value], observations: Observations
    ) -> bytes | BadRecord:
        good: list[Content] = []
        for content in contents:
            if isinstance(content, BadRecord):
                return content
            good.append(content)
        if why := self._table.judge(good, row):
            return BadRecord(str(row[-1]), why)
        for field, content in zip(self._media, good, strict=True):
            field.note(content, observations)
        return self._encoder.encode([*(content.value for content in good), *row[: self._width]])

    def _media_features(self, observations: Observations) -> dict[str, Feature]:
        return {field.name: field.feature(observations) for field in self._media}

    def _parts(self) -> Iterator[Part]:
        """Yield the splits, with sizes estimated from those of the files."""
        sizes = np.sum([field.listing.sizes for field in self._media], axis=0)
        start, more = 0, self._table.values.mean_size + _OVERHEAD
        for split, count in self._table.splits:
            yield Part(split, count, int(np.sum(sizes[start : start + count])) + more * count)
            start += count


def _contents(field: MediaField, indices: Indices) -> Iterator[Content | BadRecord]:
    for index, data in zip(indices.tolist(), field.listing.read_each(indices), strict=True):
        yield _content(field, index, data)


def _content(field: MediaField, index: int, data: bytes | OSError) -> Content | BadRecord:
    if isinstance(data, OSError):
        return unreadable_file(field.listing.key(index), data)
    try:
        return field.content(data)
    except InvalidImage as error:
        return BadRecord(field.listing.key(index), str(error), hint=error.hint)
