"""The reader of JSON Lines: one object a line, whose fields are the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.data.files.lines import line_begins
from tpuctl.data.files.rows import Rows
from tpuctl.data.files.source_files import list_files
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress
from tpuctl.data.tables.table import Dialect, Parsed, TableSource, read_table
from tpuctl.data.tables.typed_cells import given_column, infer_column
from tpuctl.errors import UsageError

FILES = re.compile(r"\.(jsonl|ndjson|jsonlines)(\.gz)?$")


def read_json_lines(root: Path, options: Options, progress: ScanProgress) -> TableSource:
    """Return the file at `root`, or all JSON Lines files below it; raises UsageError."""
    rows = Rows(list_files(root, FILES), line_begins, header=False, progress=progress)
    try:
        names = _names(rows)
    except BaseException:
        rows.close()
        raise
    parser = _Parser(names, frozenset(names))
    dialect = Dialect("jsonl", names, parser, infer_column, given_column)
    return read_table(rows, dialect, options, f"'{root.name}'", progress)


@dataclass(frozen=True)
class _Parser:
    names: tuple[str, ...]
    known: frozenset[str]

    def __call__(self, rows: Sequence[bytes]) -> Sequence[Parsed]:
        return [self._one(row) for row in rows]

    def _one(self, row: bytes) -> Parsed:
        found = _object(row)
        if isinstance(found, str):
            return found
        if found.keys() <= self.known:
            return [found.get(name) for name in self.names]
        other = next(name for name in found if name not in self.known)
        return f"has the field '{other}', which hardly any other has"


def _names(rows: Rows) -> tuple[str, ...]:
    """Return the fields in the order in which they appear; not one that less than 1 % of the rows have."""
    counts: dict[str, int] = {}
    objects = 0
    for row in rows.read(rows.sample()):
        if isinstance(found := _object(row), dict):
            objects += 1
            for name in found:
                counts[name] = counts.get(name, 0) + 1
    if len(rows) and not counts:
        wrong = _object(rows.read(rows.sample()[:1])[0])
        raise UsageError(
            f"'{rows.files.name(0)}' is not JSON Lines: line {rows.line(0)} "
            f"{wrong if isinstance(wrong, str) else 'is an empty object'}.",
            hint='It has one object on each line: {"text": "...", "label": 0}.',
            file=rows.files.name(0),
            line=rows.line(0),
        )
    return tuple(name for name, count in counts.items() if 100 * count >= objects)


def _object(row: bytes) -> dict[str, Any] | str:
    try:
        found = _DECODER.decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        nan = re.search(rb"[:\[,]\s*-?(NaN|Infinity)", row)
        return (
            f"is not JSON ({nan[1].decode()} is no JSON number; write null)"
            if nan
            else f"is not JSON ({_reason(error)})"
        )
    return found if isinstance(found, dict) else "is not a JSON object"


def _reason(error: Exception) -> str:
    text = str(error)
    return (
        "it is not UTF-8"
        if isinstance(error, UnicodeDecodeError)
        else text.removeprefix("JSON is malformed: ")
    )


_DECODER = msgspec.json.Decoder()
