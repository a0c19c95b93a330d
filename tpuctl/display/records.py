"""Shows a record of the API: its fields with their values, and other records within it as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tpuctl.display.cells import cell
from tpuctl.display.markup import Markup, facts, lines, table
from tpuctl.text import printable

MOST_ROWS = 50
"""Records within a record that are shown."""
MOST_LINES = 50
"""Lines of a text that are shown, the last ones."""


def record_html(record: Any, title: str = "") -> Markup:
    """Return the fields of a dataclass that have a value, its name in the title."""
    name = getattr(record, "name", "")
    content = {
        field.name: _value(field.name, getattr(record, field.name))
        for field in fields(record)
        if field.name != "name"
    }
    return facts(title or f"{type(record).__name__} {name}".strip(), content)


def _value(name: str, value: object) -> object:
    if isinstance(value, str) and "\n" in value:
        return lines(printable.log_line(line, colours=False) for line in value.splitlines()[-MOST_LINES:])
    if isinstance(value, tuple) and value and all(map(_is_record, value)):
        return _table(value)
    if _is_record(value) and type(value).__str__ is object.__str__:
        return record_html(value)
    return cell(name, value)


def _is_record(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _table(records: Sequence[Any]) -> Markup:
    names = [field.name for field in fields(records[0])]
    rows = [[cell(name, getattr(record, name, "")) for name in names] for record in records[:MOST_ROWS]]
    filled = [place for place in range(len(names)) if any(row[place] not in ("", None) for row in rows)]
    more = f"... and {len(records) - MOST_ROWS} more" if len(records) > MOST_ROWS else ""
    return table(_chosen(names, filled), [_chosen(row, filled) for row in rows], more)


def _chosen(values: Sequence[Any], places: Iterable[int]) -> list[Any]:
    return [values[place] for place in places]
