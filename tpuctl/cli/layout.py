"""Fits a table into the width of a terminal: cells are folded, between words where that is enough."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from tpuctl.cli.terminal import display_width

GAP = "  "
Pieces = Callable[[str], list[str]]
"""Cuts a cell into the pieces that stay in one line."""


def fit(lines: Sequence[Sequence[str]], columns: int | None) -> Iterator[list[str]]:
    """Yield each line of a table as padded cells; a folded line becomes several.

    `lines` begin with the header. Where `columns` are too few even so, each line becomes a block: a line for
    each cell, with its header.
    """
    natural = [max(map(display_width, column)) for column in zip(*lines, strict=True)]
    if columns is None or _total(natural) <= columns:
        yield from _folded(lines, natural, _words)
        return
    for pieces in (_words, _parts):
        widths = _shrunk(natural, _least(lines, pieces), columns)
        if _total(widths) <= columns:
            yield from _folded(lines, _balanced(lines, widths, pieces, columns), pieces)
            return
    yield from _blocks(lines)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _least(lines: Sequence[Sequence[str]], pieces: Pieces) -> list[int]:
    """The width of each column's longest piece."""
    return [
        max(display_width(piece.rstrip()) for cell in column for piece in pieces(cell) or [""])
        for column in zip(*lines, strict=True)
    ]


def _shrunk(natural: Sequence[int], least: Sequence[int], columns: int) -> list[int]:
    """Take from the widest column, as long as it can give; from the first, which names the line, at last."""
    widths = list(natural)
    for _ in range(_total(natural) - columns):
        giving = [index for index, width in enumerate(widths) if width > least[index]]
        if not giving:
            break
        widths[max(giving, key=lambda index: (index > 0, widths[index]))] -= 1
    return widths


def _balanced(
    lines: Sequence[Sequence[str]], widths: Sequence[int], pieces: Pieces, columns: int
) -> list[int]:
    """Give what folded columns leave unused to the one that is folded most."""
    folded = [
        [_fold(cell, width, pieces) for cell in column]
        for column, width in zip(zip(*lines, strict=True), widths, strict=True)
    ]
    used = [max(display_width(row) for cell in column for row in cell) for column in folded]
    most = max(range(len(used)), key=lambda index: sum(map(len, folded[index])))
    used[most] += columns - _total(used)
    return used


def _folded(lines: Sequence[Sequence[str]], widths: Sequence[int], pieces: Pieces) -> Iterator[list[str]]:
    for line in lines:
        cells = [_fold(cell, width, pieces) for cell, width in zip(line, widths, strict=True)]
        for row in zip_longest(*cells, fillvalue=""):
            yield [_padded(text, width) for text, width in zip(row, widths, strict=True)]


def _fold(cell: str, width: int, pieces: Pieces) -> list[str]:
    if display_width(cell) <= width:
        return [cell]
    rows = [""]
    for piece in pieces(cell):
        if rows[-1] and display_width((rows[-1] + piece).rstrip()) > width:
            rows.append("")
        rows[-1] += piece
    return [row.rstrip() for row in rows]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _blocks(lines: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    header, *rows = lines
    label = max(map(len, header))
    for number, row in enumerate(rows):
        if number:
            yield ["", ""]
        yield from ([name.ljust(label), cell] for name, cell in zip(header, row, strict=True))


def _words(cell: str) -> list[str]:
    return re.findall(r"(?:\A\s*)?\S+\s*", cell)


def _parts(cell: str) -> list[str]:
    """Words, and their parts: `tpu-vm-tf-2.18.0` has five, `gs://bucket/name` three."""
    return re.findall(r"(?:\A\s*)?(?:[^\s/_,:-]*[/_,:-]+|[^\s/_,:-]+)\s*", cell)
