"""Partial responses: the `fields` parameter, https://cloud.google.com/storage/docs/json_api#partial-response."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.json_values import JsonObject, JsonValue

Selection: TypeAlias = "dict[str, Selection]"
"""Name of a field -> the selection below it; an empty one selects everything. `*` is any field."""

DEEPEST = 20
"""Levels of a selection."""

_TOKEN = re.compile(r"[,/()]|[^,/()]+")


def select(resource: Mapping[str, JsonValue], fields: str) -> JsonObject:
    """Return the fields of a resource that `fields` selects; raises 400 for an invalid selection."""
    return _select_fields(resource, parse_fields(fields))


def parse_fields(fields: str) -> Selection:
    """Parse a selection such as `nextPageToken,items(name,acl/role)`; raises 400."""
    tokens = _TOKEN.findall(fields)
    selection, end = _parse_list(tokens, 0, 0)
    if end != len(tokens):
        raise _invalid(fields)
    return selection


def _parse_list(tokens: list[str], at: int, depth: int) -> tuple[Selection, int]:
    selection: Selection = {}
    while True:
        at = _parse_path(tokens, at, depth, selection)
        if at >= len(tokens) or tokens[at] != ",":
            return selection, at
        at += 1


def _parse_path(tokens: list[str], at: int, depth: int, into: Selection) -> int:
    """Parse `name`, `name/path` or `name(list)` at `at` into a selection; return where it ends."""
    name = tokens[at].strip() if at < len(tokens) else ""
    if not name or name in ",/()" or depth > DEEPEST:
        raise _invalid("".join(tokens))
    below: Selection = {}
    following = tokens[at + 1] if at + 1 < len(tokens) else ""
    if following == "/":
        at = _parse_path(tokens, at + 2, depth + 1, below)
    elif following == "(":
        below, at = _parse_list(tokens, at + 2, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise _invalid("".join(tokens))
        at += 1
    else:
        at += 1
    into[name] = _union(into[name], below) if name in into else below
    return at


def _union(one: Selection, other: Selection) -> Selection:
    """Return what selects all that either selects, at every level."""
    if not one or not other:
        return {}
    shared = {name: _union(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _select(value: JsonValue, selection: Selection) -> JsonValue:
    if not selection:
        return value
    if isinstance(value, list):
        return [_select(item, selection) for item in value]
    return _select_fields(value, selection) if isinstance(value, Mapping) else value


def _select_fields(resource: Mapping[str, JsonValue], selection: Selection) -> JsonObject:
    selected: JsonObject = {}
    for name, value in resource.items():
        below = [selection[key] for key in (name, "*") if key in selection]
        if below:
            selected[name] = _select(value, _union(below[0], below[-1]))
    return selected


def _invalid(fields: str) -> GcsError:
    return GcsError(400, f"Invalid field selection {fields}", reason="invalidParameter")
