"""Reads CSV and TSV files with a header: RFC 4180, as Python's csv module reads it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.contents import BLOCK, Contents
from tpuctl.data.files.lines import LONGEST, line_begins
from tpuctl.data.files.rows import Rows
from tpuctl.data.files.source_files import list_files
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.names.files import CSV
from tpuctl.data.tables.cell_splitting import split_cells
from tpuctl.data.tables.columns import check_width
from tpuctl.data.tables.csv_cells import given_column, infer_column
from tpuctl.data.tables.table import Dialect, Parsed, TableSource, read_table
from tpuctl.data.tfrecord.texts import Texts
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_DELIMITERS = ",;\t|"
_NEXT = "next"
"""A row appended after the last one: without it a quote that is not closed would go unnoticed."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|\.\d+)")


def read_csv(tree: Tree, options: Options, progress: ScanProgress) -> TableSource[str]:
    """Return the CSV files of a tree, which have the same header; raises UsageError."""
    csv.field_size_limit(LONGEST)
    lines = _Lines()
    with closed_on_error(Rows(list_files(tree, CSV), lines, header=True, progress=progress)) as rows:
        names = _header(rows, lines.delimiter)
        parser = _Parser(lines.delimiter, len(names))
        dialect = Dialect("csv", names, parser, infer_column, given_column, parser.split)
        return read_table(rows, dialect, options, tree.name, progress)


class _Lines:
    """Finds the lines, and in the first file the delimiter of cells."""

    delimiter = ""

    def __call__(self, contents: Contents, file: int) -> Iterator[NDArray[np.int64]]:
        self.delimiter = self.delimiter or _delimiter(
            contents.files.name(file), contents.read(file, 0, BLOCK)
        )
        return line_begins(contents, file, self.delimiter.encode())


@dataclass(frozen=True)
class _Parser:
    """Splits rows into cells, thousands at once; one by one only where that fails."""

    delimiter: str
    width: int

    def __call__(self, rows: Sequence[bytes]) -> Sequence[Parsed[str]]:
        try:
            lines = [row.decode() for row in rows]
            *cells, last = csv.reader([*lines, _NEXT], delimiter=self.delimiter)
        except (UnicodeDecodeError, csv.Error):
            return [self._one(row) for row in rows]
        if len(cells) == len(rows) and last == [_NEXT] and all(len(row) == self.width for row in cells):
            return cells
        return [self._one(row) for row in rows]

    def split(self, rows: Sequence[bytes]) -> Sequence[Texts] | None:
        """Return the cells of each column; None where the rows are better split one by one."""
        return split_cells(rows, self.delimiter, self.width, self)

    def _one(self, row: bytes) -> Parsed[str]:
        try:
            cells, *more = csv.reader([row.decode(), _NEXT], delimiter=self.delimiter)
        except UnicodeDecodeError:
            return "is not UTF-8"
        except csv.Error as error:
            return f"cannot be read ({error})"
        if not more:
            return "opens a quote and does not close it"
        if len(cells) != self.width:
            columns = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
            return f"has {columns}, and the header has {self.width}"
        return cells


def _delimiter(file: str, start: bytes) -> str:
    """Return the delimiter: a tab in a .tsv, else the most frequent one of the header, a comma first."""
    if re.search(r"\.tsv(\.gz)?$", file.lower()):
        return "\t"
    header = re.sub(rb'"[^"]*"', b"", start.lstrip().partition(b"\n")[0])
    return max(_DELIMITERS, key=lambda delimiter: header.count(delimiter.encode()))


def _header(rows: Rows, delimiter: str) -> tuple[str, ...]:
    """Return the names of the columns, the same in every file; raises UsageError."""
    first: tuple[str, ...] = ()
    for file in range(len(rows.files)):
        names = _names(rows.header(file), rows.files.name(file), delimiter)
        first = first or names
        if names != first:
            raise _other_header(rows.files.name(0), first, rows.files.name(file), names)
    return first


def _names(header: bytes, file: str, delimiter: str) -> tuple[str, ...]:
    if b"\r" in header.strip():
        raise _no_header(file, "ends its lines with carriage returns alone", "Save it with line feeds.")
    try:
        cells = next(csv.reader([header.decode()], delimiter=delimiter), [])
    except UnicodeDecodeError:
        raise _no_header(file, "is not UTF-8 text", "Save it as UTF-8.") from None
    names = tuple(cell.strip() or f"column_{place}" for place, cell in enumerate(cells, 1))
    if not names:
        raise _no_header(file, "has no header, as it is empty")
    check_width(len(names), file)
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        raise _no_header(file, f"has the column '{twice}' twice")
    if all(_NUMBER.fullmatch(name) for name in names):
        line = ", ".join(names[:5])
        raise _no_header(file, f"has no header: its first line is {line}", "Put the columns' names there.")
    return names


def _no_header(file: str, problem: str, hint: str = "The first line names the columns.") -> UsageError:
    return UsageError(f"'{file}' {problem}.", hint=hint, file=file, line=1)


def _other_header(first: str, expected: tuple[str, ...], file: str, names: tuple[str, ...]) -> UsageError:
    added = [name for name in names if name not in expected]
    missing = [name for name in expected if name not in names]
    differs = [f"has '{name}'" for name in added[:3]] + [f"lacks '{name}'" for name in missing[:3]]
    return UsageError(
        f"The header of '{file}' is not that of '{first}': it {', '.join(differs) or 'has another order'}.",
        hint="All files of a source have the same columns; give one of them alone, or fix its header.",
        file=file,
        line=1,
    )
