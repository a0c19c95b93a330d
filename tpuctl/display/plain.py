"""Shows records as plain text, for a terminal and for programs that show no HTML."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from tpuctl.text import printable

LONGEST = 60
"""Columns of a terminal that a cell takes at most."""


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
