"""Reads pictures with a `metadata.jsonl`, `.csv` or `.parquet` beside them, as Hugging Face has them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from tpuctl.data.files.listing import PathIndex, unreadable
from tpuctl.data.files.source_files import SourceFiles, chosen_files, every_file, split_of
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import TYPES
from tpuctl.data.source import ScanProgress
from tpuctl.data.sources.annotated.records import MEDIA, AnnotatedSource, Listed, ListedRecord, media_kind
from tpuctl.data.sources.names import METADATA, METADATA_PARQUET, is_media
from tpuctl.data.tables import csv_cells
from tpuctl.data.tables.columns import MISFITS, Column
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_SUFFIXES = "|".join(re.escape(suffix) for suffixes in MEDIA for suffix in suffixes)
_ALL = re.compile(rf"(^|/)metadata\.(jsonl|csv|parquet)$|({_SUFFIXES})$")
_FILE = "file_name"
_SEPARATORS = re.compile(r"[|;,]")
"""Between the labels of a cell, with `--type COLUMN=labels`."""
SEVERAL = "labels"
_SAMPLE, _SAMPLE_BYTES = 20_000, 8 << 20
"""Rows of a CSV file, and their bytes, from which the types of its columns are inferred."""


class _Row(NamedTuple):
    line: int
    values: Mapping[str, object] | str
    """By the name of the column; or what is wrong with the row."""


def read_metadata(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the files with the rows that name them; raises UsageError."""
    files = every_file(tree, _ALL)
    names = ((number, files.name(number).lower()) for number in range(len(files)))
    tables = [number for number, name in names if METADATA.search(name) or METADATA_PARQUET.search(name)]
    if not tables:
        raise UsageError(
            f"There is no metadata.jsonl, metadata.csv or metadata.parquet in '{tree}'.",
            hint="It lies beside the pictures, and has a column file_name.",
            file=str(tree),
        )
    index = PathIndex(len(files), files.name)
    with closing(Listed("metadata", files, tables)) as listed:
        for table in tables:
            for row in _rows(files, table, options.types):
                _add(listed, files.name(table), row, index)
                progress(len(listed), 0)
        return listed.source(_labels(options), progress)


def _labels(options: Options) -> Options:
    """Return the options with the type of lists of labels as that of labels."""
    types = {name: "label" if kind == SEVERAL else kind for name, kind in options.types.items()}
    return msgspec.structs.replace(options, types=types)


def _add(listed: Listed, table: str, row: _Row, index: PathIndex) -> None:
    """Add the record of a row, whose files lie at their paths from the folder of the table."""
    where = BadRecord(table, "", row.line, unit="row" if METADATA_PARQUET.search(table.lower()) else "line")

    def bad(why: str) -> None:
        listed.bad.append(msgspec.structs.replace(where, why=why))

    if isinstance(row.values, str):
        return bad(row.values)
    folder, files, rest = table.rpartition("/")[0], {}, {}
    for name, value in row.values.items():
        if name != _FILE and not name.endswith(f"_{_FILE}"):
            rest[name] = value
            continue
        path = f"{folder}/{value}" if folder else str(value)
        number = index.first(path.replace("/./", "/").removeprefix("./"))
        if number is None or not is_media(path):
            return bad(f"names '{value}', which is not there")
        field = name.removesuffix(f"_{_FILE}") if name != _FILE else media_kind(path)[0]
        if not field:
            raise _no_field(table)
        if field in files:
            return bad(f"names two files of the field '{field}'")
        files[field] = number
    if not files:
        return bad(f"has no {_FILE}")
    return listed.add(ListedRecord(split_of(table), files, rest, where))


def _no_field(table: str) -> UsageError:
    return UsageError(
        f"The column '_{_FILE}' of '{table}' names no field.",
        hint=f"Call it {_FILE}, or after the field that the files become: depth_{_FILE}.",
        file=table,
        column=f"_{_FILE}",
    )


def _rows(files: SourceFiles, number: int, types: Mapping[str, str]) -> Iterator[_Row]:
    name = files.name(number)
    try:
        if name.lower().endswith(".csv"):
            yield from _csv_rows(files, number, types)
        elif name.lower().endswith(".parquet"):
            yield from _parquet_rows(files.tree, name)
        else:
            with files.stream(number) as stream:
                yield from _json_rows(stream)
    except OSError as error:
        raise unreadable(name, error) from error
    files.unchanged(number)


def _json_rows(lines: Iterable[bytes]) -> Iterator[_Row]:
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield _Row(line, f"is not JSON ({error})")
            continue
        yield _Row(line, value if isinstance(value, dict) else "is not a JSON object")


def _parquet_rows(tree: Tree, name: str) -> Iterator[_Row]:
    from tpuctl.data.sources.parquet_files import ParquetTable  # noqa: PLC0415  few have such a table

    table = ParquetTable(chosen_files(tree, [("", name)]))
    batches = (batch for batch in table.batches(0, table.names))
    rows = (row for batch in batches for row in batch.to_pylist())
    for line, row in enumerate(rows, 1):
        yield _Row(line, {column: _plain(cell) for column, cell in row.items()})


def _plain(cell: object) -> object:
    """Return a cell as JSON has it; a date or a decimal as text."""
    if isinstance(cell, list):
        return [_plain(item) for item in cell]
    if isinstance(cell, dict):
        return {name: _plain(item) for name, item in cell.items()}
    return cell if cell is None or isinstance(cell, bool | int | float | str | bytes) else str(cell)


def _csv_rows(files: SourceFiles, number: int, types: Mapping[str, str]) -> Iterator[_Row]:
    """Yield the rows of a CSV file, which is read thrice: to count, for the types, and for the rows."""
    _, header = next(_lines(files, number), (1, []))
    size = int(files.listing.sizes[number])
    step = max(sum(1 for _ in _lines(files, number)) // _SAMPLE, size // _SAMPLE_BYTES, 1)
    rows = (row for _, row in islice(_lines(files, number), 1, None))
    sample = [row for row in islice(rows, 0, None, step) if len(row) == len(header)]
    columns = {
        name: _cell_reader(name, [row[place] for row in sample], types) for place, name in enumerate(header)
    }
    for line, row in islice(_lines(files, number), 1, None):
        if len(row) == len(header):
            yield _Row(line, {name: columns[name](cell) for name, cell in zip(header, row, strict=True)})
        else:
            plural = "s" * (len(row) != 1)
            yield _Row(line, f"has {len(row)} column{plural}, and the header has {len(header)}")


def _lines(files: SourceFiles, number: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and each row, with its line; blank lines are passed over."""
    name = files.name(number)
    try:
        with io.TextIOWrapper(files.stream(number), "utf-8-sig", newline="") as text:
            reader = csv.reader(text)
            yield from ((reader.line_num, row) for row in reader if row)
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"'{name}' is not a CSV file ({error})."
        raise UsageError(message, hint="Save it as UTF-8.", file=name) from error


def _cell_reader(column: str, cells: Sequence[str], types: Mapping[str, str]) -> Callable[[str], object]:
    """Return what makes a value of a cell, by the type of its column."""
    if types.get(column) == SEVERAL:
        return lambda cell: [label.strip() for label in _SEPARATORS.split(cell) if label.strip()]
    if column == _FILE or column.endswith(f"_{_FILE}"):
        return str
    kind = types.get(column, "")
    typed = csv_cells.given_column(column, kind) if kind in TYPES else csv_cells.infer_column(column, cells)
    return partial(_cell, typed)


def _cell(column: Column[str], cell: str) -> object:
    """Return a cell in the type of its column; one that does not fit as it is, which makes its row bad."""
    try:
        return column.convert(cell)
    except MISFITS:
        return cell
