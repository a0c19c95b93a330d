"""Prints results: tables and JSON on stdout, notes and hints on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tpuctl.cli import printing, terminal
from tpuctl.cli.layout import GAP, fit
from tpuctl.nodes import HttpRequest
from tpuctl.text import printable
from tpuctl.text.sizes import format_bytes as format_bytes

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
