"""Prints results: tables and JSON on stdout, notes and hints on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

import msgspec

from tpuctl import printable
from tpuctl.cli import printing, terminal
from tpuctl.cli.terminal import display_width
from tpuctl.nodes import HttpRequest
from tpuctl.printable import format_bytes as format_bytes

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


SCHEMA = 1


def json(content: Mapping[str, object]) -> None:
    """Print a JSON object with its schema version."""
    printing.write_json(indented({"schema": SCHEMA, **content}))


def json_line(content: Mapping[str, object]) -> None:
    """Print one line of JSON with its schema version, for a stream of them."""
    printing.write_json(encoded({"schema": SCHEMA, **content}))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Print rows under the names of their columns; folded on a terminal that is not wide enough."""
    stream = sys.stderr if err else sys.stdout
    lines = [[printable.line(str(cell)) for cell in line] for line in (columns, *rows)]
    has_states = "STATE" in columns
    for cells in fit(lines, terminal.width(stream)):
        pieces = [(cell, terminal.state_colour(cell) if has_states else "") for cell in cells]
        printing.write(*_with_gaps(pieces), err=err)


def _with_gaps(pieces: Iterable[printing.Painted]) -> Iterator[printing.Painted]:
    for number, piece in enumerate(pieces):
        if number:
            yield GAP, ""
        yield piece


def facts(content: Mapping[str, object], *, err: bool = False) -> None:
    """Print names and values, one a line."""
    width = max(len(name) for name in content)
    for name, value in content.items():
        hanging(f"{name:<{width}}", str(value), err=err)


def hanging(label: str, text: str, *, state: str = "", err: bool = False) -> None:
    """Print a text after a label, and a state in its colour before both.

    On a terminal a long text is folded between words, and each line begins where the first one does.
    """
    stream = sys.stderr if err else sys.stdout
    columns, indent = terminal.width(stream), len(state + label + GAP)
    first, *more = terminal.fold(printable.line(text), columns and columns - indent)
    printing.write((state, terminal.state_colour(state)), f"{label}{GAP}{first}", err=err)
    for line in more:
        printing.write(f"{'':<{indent}}{line}", err=err)


def note(text: str) -> None:
    """Print a sentence on stderr."""
    label = "Warning:" if text.startswith("Warning:") else ""
    printing.say(text.removeprefix(label).lstrip(), label=label, colour="yellow" if label else "")


def hint(*commands: str) -> None:
    """Print the next useful commands on stderr, one a line."""
    printing.show_command("\n".join(commands), label="Next:", colour="cyan")


def requests(planned: Iterable[HttpRequest], *, as_json: bool) -> None:
    """Print the requests that --dry-run holds back."""
    if as_json:
        json({"requests": list(planned)})
        return
    for request in planned:
        printing.write(f"{request.method} {request.url}")
        if request.body is not None:
            printing.write_json(indented(request.body))


def indented(content: object) -> bytes:
    """Return content as indented JSON."""
    return msgspec.json.format(encoded(content), indent=2)


def encoded(content: object) -> bytes:
    """Return content as JSON in one line; a byte of a file's name that is no UTF-8 is shown as `\\udc80`."""
    try:
        return msgspec.json.encode(content, enc_hook=str)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(content, enc_hook=str)))


def _encodable(content: object) -> object:
    """Return content without lone surrogates, which JSON in UTF-8 cannot hold."""
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace").decode()
    if isinstance(content, dict):
        return {_encodable(name): _encodable(value) for name, value in content.items()}
    return [_encodable(item) for item in content] if isinstance(content, (list, tuple)) else content
