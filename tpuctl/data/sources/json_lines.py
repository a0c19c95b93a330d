"""Reads JSON Lines: one object a line, whose fields are the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tpuctl.data.files.rows import Rows, line_begins
from tpuctl.data.files.source_files import list_files
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.names import JSON_LINES
from tpuctl.data.tables.cells import given_column, infer_column
from tpuctl.data.tables.columns import check_width
from tpuctl.data.tables.table import Dialect, Parsed, TableSource, read_table
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError


def read_json_lines(tree: Tree, options: Options, progress: ScanProgress) -> TableSource[object]:
    """Return the only file of a tree, or all JSON Lines files below it; raises UsageError."""
    files = list_files(tree, JSON_LINES)
    with closed_on_error(Rows(files, line_begins, header=False, progress=progress)) as rows:
        names = _names(rows)
        dialect = Dialect("jsonl", names, _Parser(names, frozenset(names)), infer_column, given_column)
        return read_table(rows, dialect, options, tree.name, progress)


@dataclass(frozen=True)
class _Parser:
    names: tuple[str, ...]
    fields: frozenset[str]
    """The names, to compare them with those of an object."""

    def __call__(self, rows: Sequence[bytes]) -> Sequence[Parsed[object]]:
        return [self._one(row) for row in rows]

    def _one(self, row: bytes) -> Parsed[object]:
        values = _object(row)
        if isinstance(values, str):
            return values
        if values.keys() <= self.fields:
            return [values.get(name) for name in self.names]
        other = next(name for name in values if name not in self.fields)
        return f"has the field '{other}', which hardly any other has"


def _names(rows: Rows) -> tuple[str, ...]:
    """Return the fields in the order in which they appear, but those that less than 1 % of the rows have."""
    counts: dict[str, int] = {}
    objects = 0
    for row in rows.read(rows.sample()):
        if isinstance(values := _object(row), dict):
            objects += 1
            for name in values:
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
    names = tuple(name for name, count in counts.items() if 100 * count >= objects)
    check_width(len(names), rows.files.name(0))
    return names


def _object(row: bytes) -> dict[str, object] | str:
    """Return the object of a line, or what is wrong with the line."""
    try:
        decoded = _DECODER.decode(row)
    except RecursionError:
        return "is not a record: its lists or objects are nested too deeply"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        nan = re.search(rb"[:\[,]\s*-?(NaN|Infinity)", row)
        return (
            f"is not JSON ({nan[1].decode()} is no JSON number; write null)"
            if nan
            else f"is not JSON ({_reason(error)})"
        )
    return decoded if isinstance(decoded, dict) else "is not a JSON object"


def _reason(error: Exception) -> str:
    text = str(error)
    return (
        "it is not UTF-8"
        if isinstance(error, UnicodeDecodeError)
        else text.removeprefix("JSON is malformed: ")
    )


_DECODER = msgspec.json.Decoder()
