"""JSON merge patch, RFC 7396, over the fields that a caller may set."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tpuctl.sim.json_values import JsonObject, JsonValue


def merge_patch(
    old: Mapping[str, JsonValue], patch: Mapping[str, JsonValue], settable: Collection[str]
) -> JsonObject:
    """Return `old` with the settable fields of `patch` merged into it; null removes a field."""
    return _merge(old, {name: value for name, value in patch.items() if name in settable})


def _merge(old: Mapping[str, JsonValue], patch: Mapping[str, JsonValue]) -> JsonObject:
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
