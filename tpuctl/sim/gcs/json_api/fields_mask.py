"""Partial responses: the `fields` parameter, https://cloud.google.com/storage/docs/json_api#partial-response."""

from __future__ import annotations

import re
from typing import Any

from tpuctl.sim.gcs.errors import GcsError

Selection = dict[str, Any]
"""Name of a field -> what is wanted below it; nothing below means all of it. `*` is any field."""

DEEPEST = 20
"""Levels of a selection."""

_TOKEN = re.compile(r"[,/()]|[^,/()]+")


def select(resource: dict[str, Any], fields: str) -> dict[str, Any]:
    """Return the part of a resource that `fields` names; raises 400 when it cannot be read."""
    picked: dict[str, Any] = _pick(resource, parse_fields(fields))
    return picked


def parse_fields(fields: str) -> Selection:
    """Read a selection such as `nextPageToken,items(name,acl/role)`; raises 400."""
    tokens = _TOKEN.findall(fields)
    selection, at = _parse_list(tokens, 0, 0)
    if at != len(tokens):
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
    """Read `name`, `name/path` or `name(list)` at `at` into a selection; return where it ends."""
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
    known = into.get(name)
    into[name] = {**known, **below} if known and below else {}
    if known is None:
        into[name] = below
    return at


def _pick(value: Any, selection: Selection) -> Any:
    if not selection:
        return value
    if isinstance(value, list):
        return [_pick(one, selection) for one in value]
    if not isinstance(value, dict):
        return value
    wanted = {name: selection.get(name, selection.get("*")) for name in value}
    return {name: _pick(value[name], below) for name, below in wanted.items() if below is not None}


def _invalid(fields: str) -> GcsError:
    return GcsError(400, f"Invalid field selection {fields}", reason="invalidParameter")
