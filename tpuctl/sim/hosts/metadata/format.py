"""Formats values and directories of the metadata server as text or JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from tpuctl.sim.json_values import JsonValue

FREE_NAMES = ("attributes", "guest-attributes")
"""Directories whose names are the user's; JSON keeps these unchanged."""


def is_directory(node: JsonValue) -> bool:
    """Return whether a node of the tree has entries of its own; a list of plain values is a value."""
    return isinstance(node, dict) or (
        isinstance(node, list) and any(isinstance(element, dict) for element in node)
    )


def walk(tree: JsonValue, names: list[str]) -> JsonValue:
    """Return the node at this path; raises KeyError."""
    for name in names:
        if not is_directory(tree):
            raise KeyError(name)
        tree = dict(_entries(tree))[name]
    return tree


def listing(directory: JsonValue) -> str:
    """Return the names in a directory, one a line, those of directories with a slash."""
    return "".join(
        f"{name}/\n" if is_directory(value) else f"{name}\n" for name, value in _entries(directory)
    )


def text(value: JsonValue) -> str:
    """Return one value as text."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def flat(directory: JsonValue) -> str:
    """Return everything below a directory, a line `path value` each."""
    return "".join(f"{path} {text(value)}\n" for path, value in _leaves(directory, ""))


def as_json(value: JsonValue, names: list[str]) -> str:
    """Return the node at the path `names` as JSON, in which Google writes `zoneName` for `zone-name`."""
    return json.dumps(_camel(value, free=any(name in FREE_NAMES for name in names)))


def etag(value: JsonValue) -> str:
    """Return a tag that changes with the value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _entries(directory: JsonValue) -> list[tuple[str, JsonValue]]:
    if isinstance(directory, dict):
        return list(directory.items())
    assert isinstance(directory, list), "a directory"
    return [(str(index), value) for index, value in enumerate(directory)]


def _leaves(node: JsonValue, path: str) -> Iterator[tuple[str, JsonValue]]:
    for name, value in _entries(node):
        if is_directory(value):
            yield from _leaves(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def _camel(node: JsonValue, *, free: bool) -> JsonValue:
    if isinstance(node, list):
        return [_camel(element, free=free) for element in node]
    if not isinstance(node, dict):
        return node
    return {
        (name if free or "@" in name else _camel_name(name)): _camel(value, free=free or name in FREE_NAMES)
        for name, value in node.items()
    }


def _camel_name(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)
