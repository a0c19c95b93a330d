"""Prints results: tables and JSON on stdout, notes and hints on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tpuctl.nodes import HttpRequest

SCHEMA = 1


def json(content: Mapping[str, object]) -> None:
    """Print a JSON object with its schema version."""
    print(indented({"schema": SCHEMA, **content}))


def json_line(content: Mapping[str, object]) -> str:
    """Return one line of JSON with its schema version, for a stream of them."""
    return msgspec.json.encode({"schema": SCHEMA, **content}).decode()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Print rows under the names of their columns, each column as wide as it needs."""
    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(padded.rstrip(), file=sys.stderr if err else sys.stdout)


def facts(content: Mapping[str, object], *, err: bool = False) -> None:
    """Print names and values, one a line."""
    width = max(len(name) for name in content)
    for name, value in content.items():
        print(f"{name:<{width}}  {value}", file=sys.stderr if err else sys.stdout)


def note(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr)


def hint(command: str) -> None:
    """Print the next useful command on stderr."""
    print(f"Next: {command}", file=sys.stderr)


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
