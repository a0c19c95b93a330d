"""Checks a bucket's lifecycle rules, https://cloud.google.com/storage/docs/lifecycle."""

from __future__ import annotations

from tpuctl.sim.gcs.errors import invalid, invalid_field
from tpuctl.sim.gcs.timestamps import parse_timestamp
from tpuctl.sim.json_values import JsonObject, JsonValue

ACTIONS = frozenset({"Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"})


def check_lifecycle(lifecycle: JsonObject) -> None:
    """Raise 400 unless every rule has an action and at least one condition, all of them valid."""
    rules = lifecycle.get("rule", [])
    if not isinstance(rules, list):
        raise invalid_field("lifecycle.rule")
    for rule in rules:
        _check_rule(rule if isinstance(rule, dict) else {})


def _check_rule(rule: JsonObject) -> None:
    action, condition = rule.get("action"), rule.get("condition")
    if not isinstance(action, dict) or action.get("type") not in ACTIONS:
        raise invalid_field("lifecycle.rule.action")
    if not isinstance(condition, dict) or not condition:
        raise invalid("A lifecycle rule must have at least one condition.")
    for name, value in condition.items():
        is_valid = CONDITIONS.get(name)
        if is_valid is None or not is_valid(value):
            raise invalid_field(f"lifecycle.rule.condition.{name}")


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_date(value: JsonValue) -> bool:
    try:
        parse_timestamp(f"{value}T00:00:00Z")
    except ValueError:
        return False
    return True


def _is_flag(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _is_list_of_texts(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


CONDITIONS = {
    "age": _is_count,
    "createdBefore": _is_date,
    "customTimeBefore": _is_date,
    "daysSinceCustomTime": _is_count,
    "daysSinceNoncurrentTime": _is_count,
    "isLive": _is_flag,
    "matchesPrefix": _is_list_of_texts,
    "matchesStorageClass": _is_list_of_texts,
    "matchesSuffix": _is_list_of_texts,
    "noncurrentTimeBefore": _is_date,
    "numNewerVersions": _is_count,
}
"""Condition -> whether a value of it is valid."""
