"""Prints results: tables and JSON on stdout, notes and hints on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tpuctl.cli import terminal
from tpuctl.cli.layout import GAP, fit
from tpuctl.nodes import HttpRequest

SCHEMA = 1


def json(content: Mapping[str, object]) -> None:
    """Print a JSON object with its schema version."""
    print(indented({"schema": SCHEMA, **content}))


def json_line(content: Mapping[str, object]) -> str:
    """Return one line of JSON with its schema version, for a stream of them."""
    return msgspec.json.encode({"schema": SCHEMA, **content}).decode()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Print rows under the names of their columns; folded on a terminal that is not wide enough."""
    stream = sys.stderr if err else sys.stdout
    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    has_states = "STATE" in columns
    for cells in fit(lines, terminal.width(stream)):
        painted = [terminal.paint_state(cell, stream) for cell in cells] if has_states else cells
        print(GAP.join(painted).rstrip(), file=stream)


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
    lines = terminal.fold(text, columns and columns - indent)
    label = terminal.paint_state(state, stream) + label
    print(f"{label}{GAP}" + f"\n{'':<{indent}}".join(lines), file=stream)


def note(text: str) -> None:
    """Print a sentence on stderr."""
    label = "Warning:" if text.startswith("Warning:") else ""
    terminal.say(text.removeprefix(label).lstrip(), label=label, colour="yellow" if label else "")


def hint(command: str) -> None:
    """Print the next useful command on stderr."""
    terminal.show_command(command, label="Next:", colour="cyan")


def requests(planned: Iterable[HttpRequest], *, as_json: bool) -> None:
    """Print the requests that --dry-run holds back."""
    if as_json:
        json({"requests": list(planned)})
        return
    for request in planned:
        print(f"{request.method} {request.url}")
        if request.body is not None:
            print(indented(request.body))


def indented(content: object) -> str:
    """Return content as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(content, enc_hook=str), indent=2).decode()


def format_bytes(size: float) -> str:
    """Return a size in bytes with its unit: `1.2 MB` (powers of ten)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
