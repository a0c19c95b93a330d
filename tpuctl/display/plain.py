"""Shows records as plain text, for a terminal and for programs that show no HTML."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from tpuctl.text import printable

LONGEST = 60
"""Columns of a terminal that a cell takes at most."""


def text_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of text without trailing spaces; columns without a value are left out."""
    texts = [[_cell(value) for value in row] for row in rows]
    columns = [place for place in range(len(headings)) if any(row[place] for row in texts)]
    table = [[headings[place].upper() for place in columns]]
    table += [[row[place] for place in columns] for row in texts]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(_padded, row, widths)).rstrip() for row in table)


def summary(kind: str, name: str, *parts: object) -> str:
    """Return a record in one line: `<Node n1: READY, v3-8, europe-west4-a>`."""
    texts = [printable.line(str(part)) for part in parts if part not in ("", None)]
    return f"<{kind} {printable.line(name)}{': ' if texts else ''}{', '.join(texts)}>"


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
