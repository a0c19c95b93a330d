"""Splits many rows of a CSV file into cells at once, as Python's csv module does it row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.tfrecord.texts import MARGIN, Bytes, Places, Texts

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
