"""Shows several records as a table, and a picture."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsIndex, TypeVar, overload

from tpuctl import printable
from tpuctl.display.markup import cell, element, table

LONGEST = 60
"""Columns of a terminal that a cell takes at most."""
T = TypeVar("T")
MOST_ROWS = 200
"""Rows that a notebook shows; records beyond are counted."""
MOST_LINES = 30
"""Rows that plain text shows."""

Columns = Mapping[str, Callable[[T], object]]
"""Heading -> the value of a record, which `cell` says as text."""


class Listing(tuple[T, ...]):
    """Records in order: a tuple, which a notebook shows as a table, and so does a plain Python."""

    noun: str
    """What the records are, in the plural: `runs`."""
    columns: Mapping[str, Callable[[T], object]]

    def __new__(cls, records: Iterable[T], noun: str, columns: Columns[T]) -> Listing[T]:
        """Take the records, what they are called, and the columns that are shown."""
        listing = super().__new__(cls, records)
        listing.noun, listing.columns = noun, columns
        return listing

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> T: ...

    @overload
    def __getitem__(self, place: slice, /) -> Listing[T]: ...

    def __getitem__(self, place: SupportsIndex | slice, /) -> T | Listing[T]:
        """Return a record, or for a slice a listing of some."""
        if isinstance(place, slice):
            return Listing(super().__getitem__(place), self.noun, self.columns)
        return super().__getitem__(place)

    def __getnewargs__(self) -> tuple[object, ...]:
        """Copy and pickle it as it is made."""
        return tuple(self), self.noun, self.columns

    def __repr__(self) -> str:
        """Return a table of text; `list(...)` shows the records themselves."""
        if not self:
            return f"(no {self.noun})"
        return text_table(*self._table(MOST_LINES)) + self._more(MOST_LINES, "\n")

    def _repr_html_(self) -> str:
        if not self:
            return element("div", f"no {self.noun}", class_="tpuctl")
        return table(*self._table(MOST_ROWS), self._more(MOST_ROWS) or self._count())

    def _table(self, most: int) -> tuple[list[str], list[list[object]]]:
        """Return headings and rows of the first records, without columns in which no record has a value."""
        rows = [[cell(name, value(record)) for name, value in self.columns.items()] for record in self[:most]]
        filled = [
            place for place in range(len(self.columns)) if any(row[place] not in ("", None) for row in rows)
        ]
        headings = list(self.columns)
        return [headings[place] for place in filled], [[row[place] for place in filled] for row in rows]

    def _count(self) -> str:
        return f"{len(self)} {self.noun if len(self) > 1 else self.noun.removesuffix('s')}"

    def _more(self, most: int, before: str = "") -> str:
        return f"{before}... and {len(self) - most} more {self.noun}" if len(self) > most else ""


# Shows records as plain text, for a terminal and for programs that show no HTML.


def text_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of text without trailing spaces."""
    table = [[heading.upper() for heading in headings], *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(_padded, row, widths)).rstrip() for row in table)


def width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = printable.line("" if value is None else text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture as PNG."""

    png: bytes
    text: str
    """What it shows."""
    problems: Sequence[str] = ()
    """Why something is missing in it."""

    def save(self, path: str | Path) -> None:
        """Write it into a file."""
        Path(path).write_bytes(self.png)

    def __repr__(self) -> str:
        """Say what it shows."""
        missing = f", {len(self.problems)} not drawn" if self.problems else ""
        return f"<{self.text}{missing}: .save('FILE.png')>"

    def _repr_png_(self) -> bytes:
        return self.png
