"""Reads CSV and TSV files with a header: RFC 4180, as Python's csv module reads it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.rows import BLOCK, LONGEST, Contents, Rows, line_begins
from tpuctl.data.files.source_files import list_files
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.names import CSV
from tpuctl.data.tables.columns import check_width
from tpuctl.data.tables.csv_cells import given_column, infer_column
from tpuctl.data.tables.table import Dialect, Parsed, TableSource, read_table
from tpuctl.data.tfrecord.texts import MARGIN, Bytes, Places, Texts
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_LINE_FEED, _RETURN, _QUOTE = b'\n\r"'
_LONGEST = 1 << 20
"""Bytes of a row; longer ones are read one by one."""
_BLANK = 8
"""Line breaks after a row that are looked at."""

Parse: TypeAlias = Callable[[Sequence[bytes]], Sequence[Sequence[str] | str]]
"""Splits rows one by one; a text says what is wrong with a row."""

_Bounds: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], Places]
"""Where cells begin and end, a line for each column, and the rows for which that is not right."""


def split_cells(rows: Sequence[bytes], delimiter: str, width: int, parse: Parse) -> list[Texts] | None:
    """Return the cells of each column; None if a row is bad, or such that it is better read one by one.

    Rows that are quoted in an unusual way are split by `parse`.
    """
    joined = Texts.of(rows)
    if not _is_plain_text(joined):
        return None
    ends = _content_ends(joined)
    if ends is None:
        return None
    marks, data = np.flatnonzero(joined.data == ord(delimiter)), joined.data
    bounds = _usual_bounds(joined, ends, marks, width) or _bounds(joined, ends, marks, width)
    begins, ends, unusual = bounds
    if len(unusual):
        parsed = parse([rows[place] for place in unusual.tolist()])
        if any(isinstance(cells, str) for cells in parsed):
            return None
        extra = Texts.of([cell.encode() for cells in parsed for cell in cells])
        begins[:, unusual] = extra.begins.reshape(-1, width).T + len(data)
        ends[:, unusual] = begins[:, unusual] + extra.sizes.reshape(-1, width).T
        data = np.concatenate((data, extra.data))
    margin = np.zeros(MARGIN, np.uint8)
    data, begins, sizes = np.concatenate((margin, data, margin)), begins + MARGIN, ends - begins
    return [Texts(data, begins[place], sizes[place]) for place in range(width)]


def _is_plain_text(joined: Texts) -> bool:
    """Whether no row is too long, and all are UTF-8 without a NUL."""
    if not int(joined.sizes.min()) or int(joined.sizes.max()) > _LONGEST:
        return False
    content = joined.data.tobytes()
    if b"\0" in content:
        return False
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError:
            return False
    # a row ends with a line feed, or it is the last of a file: no character can reach from one into the next
    return bool(np.all(joined.data[joined.begins] & 0xC0 != 0x80))


def _content_ends(joined: Texts) -> Places | None:
    """Return where each row ends without its line break, and the blank lines that follow."""
    ends = joined.begins + joined.sizes
    for _ in range(_BLANK):
        last = joined.data[np.maximum(ends - 1, 0)]
        blank = ((last == _LINE_FEED) | (last == _RETURN)) & (ends > joined.begins)
        if not blank.any():
            return ends
        ends = ends - blank
    return None


def _usual_bounds(joined: Texts, row_ends: Places, marks: Places, width: int) -> _Bounds | None:
    """Return where cells begin and end where no row has a quote, and all have the right number of cells."""
    count = len(row_ends)
    line_breaks = len(joined.data) - int((row_ends - joined.begins).sum())
    if (
        len(marks) != count * (width - 1)
        or np.count_nonzero(_is_break(joined.data)) != line_breaks
        or (joined.data == _QUOTE).any()
        or (row_ends <= joined.begins).any()
    ):
        return None
    between = np.ascontiguousarray(marks.reshape(count, width - 1).T)
    if width > 1 and ((between[0] < joined.begins).any() or (between[-1] > row_ends).any()):
        return None
    begins = np.concatenate((joined.begins[None], between + 1))
    return begins, np.concatenate((between, row_ends[None])), np.empty(0, np.int64)


def _bounds(joined: Texts, row_ends: Places, marks: Places, width: int) -> _Bounds:
    """Return where the cells of each row begin and end, and the rows for which this is not right."""
    data, rows = joined.data, (joined.begins, row_ends)
    quotes, breaks = np.flatnonzero(data == _QUOTE), np.flatnonzero(_is_break(data))
    if len(quotes):
        marks, breaks = _outside(marks, quotes, joined.begins), _outside(breaks, quotes, joined.begins)
    usual = (_count(marks, rows) == width - 1) & (_count(breaks, rows) == 0) & (row_ends > joined.begins)
    within = marks[np.repeat(usual, _count(marks, (joined.begins, joined.begins + joined.sizes)))]
    begins, ends = np.zeros((2, width, len(row_ends)), np.int64)
    begins[0], ends[-1] = joined.begins, row_ends
    between = within.reshape(int(np.count_nonzero(usual)), width - 1).T
    begins[1:, usual], ends[:-1, usual] = between + 1, between
    if len(quotes):
        usual &= _unquote(data, quotes, begins, ends, rows)
    return begins, ends, np.flatnonzero(~usual)


def _is_break(data: Bytes) -> NDArray[np.bool_]:
    breaks: NDArray[np.bool_] = (data == _LINE_FEED) | (data == _RETURN)
    return breaks


def _outside(marks: Places, quotes: Places, row_begins: Places) -> Places:
    """Return the marks that have an even number of quotes before them in their row."""
    row = np.searchsorted(row_begins, marks, side="right") - 1
    before = np.searchsorted(quotes, marks) - np.searchsorted(quotes, row_begins)[row]
    outside: Places = marks[before % 2 == 0]
    return outside


def _unquote(
    data: Bytes, quotes: Places, begins: Places, ends: Places, rows: tuple[Places, Places]
) -> NDArray[np.bool_]:
    """Take the quotes off quoted cells; return the rows in which each quote begins or ends a cell."""
    quoted_rows = np.flatnonzero(_count(quotes, rows))
    usual = np.ones(begins.shape[1], np.bool_)
    starts, stops = begins[:, quoted_rows], ends[:, quoted_rows]
    first, last = np.searchsorted(quotes, starts), np.searchsorted(quotes, stops)
    quoted = last - first == 2
    at_ends = (data[np.minimum(starts, len(data) - 1)] == _QUOTE) & (data[np.maximum(stops - 1, 0)] == _QUOTE)
    usual[quoted_rows] = ((last == first) | (quoted & at_ends)).all(axis=0)
    begins[:, quoted_rows], ends[:, quoted_rows] = starts + quoted, stops - quoted
    return usual


def _count(marks: Places, spans: tuple[Places, Places]) -> Places:
    """Return how many marks are in each span."""
    begins, ends = spans
    counts: Places = np.searchsorted(marks, ends) - np.searchsorted(marks, begins)
    return counts


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
