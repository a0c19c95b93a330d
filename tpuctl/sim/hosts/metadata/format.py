"""How the metadata server writes values and directories: text or JSON, and its names in both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

FREE_NAMES = ("attributes", "guest-attributes")
"""Directories whose keys are the user's, and stay as they are in JSON."""


def is_directory(value: Any) -> bool:
    """Return whether a node of the tree has entries of its own; a list of plain values is a value."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict) for one in value)
    )


def walk(tree: Any, names: list[str]) -> Any:
    """Return the node at this path, or raise KeyError."""
    for name in names:
        if not is_directory(tree):
            raise KeyError(name)
        tree = dict(_entries(tree))[name]
    return tree


def listing(directory: Any) -> str:
    """Return the names in a directory, one a line, those of directories with a slash."""
    return "".join(
        f"{name}/\n" if is_directory(value) else f"{name}\n" for name, value in _entries(directory)
    )


def text(value: Any) -> str:
    """Return one value as text."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def flat(directory: Any) -> str:
    """Return everything below a directory, a line `path value` each."""
    return "".join(f"{path} {text(value)}\n" for path, value in _leaves(directory, ""))


def as_json(value: Any, names: list[str]) -> str:
    """Return the node at the path `names` as JSON, in which Google writes `zoneName` for `zone-name`."""
    return json.dumps(_camel(value, free=any(name in FREE_NAMES for name in names)))


def etag(value: Any) -> str:
    """Return a tag that changes with the value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _entries(directory: Any) -> list[tuple[str, Any]]:
    if isinstance(directory, dict):
        return list(directory.items())
    return [(str(index), value) for index, value in enumerate(directory)]


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, value in _entries(node):
        if is_directory(value):
            yield from _leaves(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def _camel(node: Any, *, free: bool) -> Any:
    if isinstance(node, list):
        return [_camel(one, free=free) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        (name if free or "@" in name else _camel_name(name)): _camel(value, free=free or name in FREE_NAMES)
        for name, value in node.items()
    }


def _camel_name(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)
