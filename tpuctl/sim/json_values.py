"""Defines types for JSON values: bodies of requests, resources in responses, columns of JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = str | int | float | bool | Sequence["JsonValue"] | Mapping[str, "JsonValue"] | None
"""Any JSON value, for reading. `isinstance(value, list)` and `isinstance(value, dict)` narrow it."""

JsonObject: TypeAlias = dict[str, JsonValue]
"""A JSON object, for its builder to change; a function that reads one takes `Mapping[str, JsonValue]`."""


def parse_object(text: str | bytes) -> JsonObject:
    """Return the JSON object that a text holds; raises ValueError when it holds anything else."""
    try:
        parsed: JsonValue = json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if not isinstance(parsed, dict):
        raise ValueError("the JSON is no object")
    return parsed


def object_at(parent: Mapping[str, JsonValue], name: str) -> JsonObject:
    """Return the object under a name; an empty one where the name is absent or holds anything else."""
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def objects_at(parent: Mapping[str, JsonValue], name: str) -> list[JsonObject]:
    """Return the objects in the list under a name; none where the name is absent or holds no list."""
    values = parent.get(name)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def text_at(parent: Mapping[str, JsonValue], name: str, default: str = "") -> str:
    """Return the text under a name, or the default where the name is absent or holds no text."""
    value = parent.get(name)
    return value if isinstance(value, str) else default
