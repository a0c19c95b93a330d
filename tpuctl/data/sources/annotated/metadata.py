"""Reads pictures with a `metadata.jsonl` or `metadata.csv` beside them, as Hugging Face has them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.listing import unreadable
from tpuctl.data.files.source_files import SourceFiles, every_file, split_of
from tpuctl.data.options import Options
from tpuctl.data.schema.features import TYPES
from tpuctl.data.source import ScanProgress
from tpuctl.data.sources.annotated.records import (
    MEDIA,
    Listed,
    ListedRecord,
    check_splits,
    is_media,
    media_kind,
)
from tpuctl.data.sources.annotated.source import AnnotatedSource
from tpuctl.data.tables import csv_cells
from tpuctl.data.tables.columns import MISFITS, Column
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

FILES = re.compile(r"(^|/)metadata\.(jsonl|csv)$")
_SUFFIXES = "|".join(re.escape(suffix) for suffixes in MEDIA for suffix in suffixes)
_ALL = re.compile(rf"(^|/)metadata\.(jsonl|csv)$|({_SUFFIXES})$")
_FILE = "file_name"
_SEPARATORS = re.compile(r"\s*[|;,]\s*")
"""Between the labels of a cell, with `--type COLUMN=labels`."""
SEVERAL = "labels"


class _Row(NamedTuple):
    line: int
    values: Mapping[str, object] | str
    """By the name of the column; or what is wrong with the row."""


def read_metadata(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the files with the rows that name them; raises UsageError."""
    files = every_file(tree, _ALL)
    numbers = {files.name(number): number for number in range(len(files))}
    tables = [number for name, number in numbers.items() if FILES.search(name.lower())]
    if not tables:
        raise UsageError(
            f"There is no metadata.jsonl or metadata.csv in '{tree}'.",
            hint="It lies beside the pictures, and has a column file_name.",
            file=str(tree),
        )
    listed = Listed("metadata", files, tables, bad=list(files.bad))
    for table in tables:
        for row in _rows(files, table, options.types):
            _add(listed, files.name(table), row, numbers)
            progress(len(listed.records), 0)
    check_splits(listed.records)
    return listed.source(_labels(options), progress)


def _labels(options: Options) -> Options:
    """Return the options with the type of lists of labels as that of labels."""
    types = {name: "label" if kind == SEVERAL else kind for name, kind in options.types.items()}
    return msgspec.structs.replace(options, types=types)


def _add(listed: Listed, table: str, row: _Row, numbers: Mapping[str, int]) -> None:
    """Add the record of a row, whose files lie at their paths from the folder of the table."""
    where = BadRecord(table, "", row.line)
    if isinstance(row.values, str):
        listed.bad.append(BadRecord(table, row.values, row.line))
        return
    folder, files, rest = table.rpartition("/")[0], {}, {}
    for name, value in row.values.items():
        if name != _FILE and not name.endswith(f"_{_FILE}"):
            rest[name] = value
            continue
        path = f"{folder}/{value}" if folder else str(value)
        number = numbers.get(path.replace("/./", "/").removeprefix("./"))
        if number is None or not is_media(path):
            listed.bad.append(BadRecord(table, f"names '{value}', which is not there", row.line))
            return
        field = name.removesuffix(f"_{_FILE}") if name != _FILE else media_kind(path)[0]
        if field in files:
            listed.bad.append(BadRecord(table, f"names two files of the field '{field}'", row.line))
            return
        files[field] = number
    if not files:
        listed.bad.append(BadRecord(table, f"has no {_FILE}", row.line))
        return
    listed.records.append(ListedRecord(split_of(table), files, rest, where))


def _rows(files: SourceFiles, number: int, types: Mapping[str, str]) -> Iterator[_Row]:
    name = files.name(number)
    try:
        data = files.listing.read(number)
    except OSError as error:
        raise unreadable(name, error) from error
    if name.lower().endswith(".csv"):
        return _csv_rows(data, name, types)
    return _json_rows(data)


def _json_rows(data: bytes) -> Iterator[_Row]:
    for line, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield _Row(line, f"is not JSON ({error})")
            continue
        yield _Row(line, value if isinstance(value, dict) else "is not a JSON object")


def _csv_rows(data: bytes, name: str, types: Mapping[str, str]) -> Iterator[_Row]:
    """Yield the rows of a CSV file; the type of a column is that of all of its cells."""
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        header = next(reader, [])
        rows = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"'{name}' is not a CSV file ({error})."
        raise UsageError(message, hint="Save it as UTF-8.", file=name) from error
    good = [row for _, row in rows if len(row) == len(header)]
    columns = {name: _cells(name, [row[place] for row in good], types) for place, name in enumerate(header)}
    typed = iter(zip(*columns.values(), strict=True))
    for line, row in rows:
        if len(row) != len(header):
            yield _Row(
                line, f"has {len(row)} column{'s' * (len(row) != 1)}, and the header has {len(header)}"
            )
        else:
            yield _Row(line, dict(zip(columns, next(typed), strict=True)))


def _cells(column: str, cells: Sequence[str], types: Mapping[str, str]) -> Sequence[object]:
    if types.get(column) == SEVERAL:
        return [[label for label in _SEPARATORS.split(cell.strip()) if label] for cell in cells]
    if column == _FILE or column.endswith(f"_{_FILE}"):
        return cells
    kind = types.get(column, "")
    typed = csv_cells.given_column(column, kind) if kind in TYPES else csv_cells.infer_column(column, cells)
    return [_cell(cell, typed) for cell in cells]


def _cell(cell: str, column: Column[str]) -> object:
    """Return a cell in the type of its column; one that does not fit as it is, which makes its row bad."""
    try:
        return column.convert(cell)
    except MISFITS:
        return cell
