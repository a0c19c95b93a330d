"""JSON merge patch, RFC 7396, over the fields a caller may set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def patched(old: Mapping[str, Any], patch: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """Return `old` with the allowed fields of `patch` laid over it; null removes, objects merge."""
    return _merge(old, {name: value for name, value in patch.items() if name in allowed})


def _merge(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = _merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged
