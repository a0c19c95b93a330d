"""The fields of a bucket that callers may set, and what may be in them."""

from __future__ import annotations

from typing import Any

from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.timestamps import parse_timestamp, timestamp

SETTABLE = frozenset(
    {
        "acl",
        "autoclass",
        "billing",
        "cors",
        "defaultEventBasedHold",
        "defaultObjectAcl",
        "encryption",
        "iamConfiguration",
        "labels",
        "lifecycle",
        "logging",
        "retentionPolicy",
        "rpo",
        "softDeletePolicy",
        "storageClass",
        "versioning",
        "website",
    }
)
"""Fields that are kept; versioning, lifecycle, soft delete, holds, retention and ACLs have effect."""

SETTABLE_ONCE = frozenset({"location", "customPlacementConfig", "hierarchicalNamespace", "objectRetention"})
"""Fields that only creation may set."""

OBJECTS = (
    "autoclass",
    "billing",
    "encryption",
    "hierarchicalNamespace",
    "iamConfiguration",
    "labels",
    "lifecycle",
    "logging",
    "retentionPolicy",
    "softDeletePolicy",
    "versioning",
    "website",
)
TEXTS = ("location", "rpo", "storageClass")
LISTS = ("acl", "cors", "defaultObjectAcl")
ACL_LISTS = {"acl", "defaultObjectAcl"}

LONGEST_RETENTION = 3_155_760_000
"""Seconds: a hundred years."""

SOFT_DELETE_RANGE = range(7 * 86400, 90 * 86400 + 1)
"""Seconds; 0 switches it off."""

LIFECYCLE_ACTIONS = frozenset({"Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"})

_TYPES: tuple[tuple[tuple[str, ...], type], ...] = ((OBJECTS, dict), (TEXTS, str), (LISTS, list))


def checked_bucket_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields if their types can be meant; raise 400 if not."""
    for names, kind in _TYPES:
        for name in names:
            if name in fields and not isinstance(fields[name], kind):
                raise _invalid(name)
    if not all(isinstance(value, str) for value in fields.get("labels", {}).values()):
        raise _invalid("labels")
    if "retentionPolicy" in fields:
        fields["retentionPolicy"] = _retention_policy(fields["retentionPolicy"])
    if "softDeletePolicy" in fields:
        fields["softDeletePolicy"] = _soft_delete_policy(fields["softDeletePolicy"])
    for name in ACL_LISTS & set(fields):
        fields[name] = checked_acl(fields[name])
    _check_lifecycle(fields.get("lifecycle", {}))
    return fields


def checked_acl(entries: Any) -> list[dict[str, str]]:
    """Return an access control list with just what counts, entity and role; raise 400 if it is none."""
    if not isinstance(entries, list):
        raise _invalid("acl")
    kept = []
    for entry in entries:
        known = [entry.get(name) for name in ("entity", "role")] if isinstance(entry, dict) else [None]
        if not all(isinstance(value, str) and value for value in known):
            raise _invalid("acl")
        kept.append({"entity": entry["entity"], "role": entry["role"]})
    return kept


def check_policy_change(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise 403 when a locked retention policy would be removed or shortened."""
    locked = old.get("retentionPolicy", {})
    period = int(new.get("retentionPolicy", {}).get("retentionPeriod", 0))
    if locked.get("isLocked") and period < int(locked["retentionPeriod"]):
        raise GcsError(403, "Cannot reduce retention duration of a locked Retention Policy for bucket.")


def _retention_policy(policy: dict[str, Any]) -> dict[str, Any]:
    period = _seconds(policy, "retentionPeriod", "retentionPolicy")
    if not 0 < period <= LONGEST_RETENTION:
        raise _invalid("retentionPolicy.retentionPeriod")
    effective = policy.get("effectiveTime") or timestamp()
    locked = bool(policy.get("isLocked"))
    return {"retentionPeriod": str(period), "effectiveTime": effective, "isLocked": locked}


def _soft_delete_policy(policy: dict[str, Any]) -> dict[str, Any]:
    seconds = _seconds(policy, "retentionDurationSeconds", "softDeletePolicy")
    if seconds and seconds not in SOFT_DELETE_RANGE:
        raise _invalid("softDeletePolicy.retentionDurationSeconds")
    effective = policy.get("effectiveTime") or timestamp()
    return {"retentionDurationSeconds": str(seconds), "effectiveTime": effective}


def _check_lifecycle(lifecycle: dict[str, Any]) -> None:
    rules = lifecycle.get("rule", [])
    if not isinstance(rules, list):
        raise _invalid("lifecycle.rule")
    for rule in rules:
        action = rule.get("action") if isinstance(rule, dict) else None
        condition = rule.get("condition") if isinstance(rule, dict) else None
        if not isinstance(action, dict) or action.get("type") not in LIFECYCLE_ACTIONS:
            raise _invalid("lifecycle.rule.action")
        if not isinstance(condition, dict) or not condition:
            raise invalid("A lifecycle rule must have at least one condition.")
        _check_condition(condition)


def _check_condition(condition: dict[str, Any]) -> None:
    for name, value in condition.items():
        good = CONDITIONS.get(name)
        if good is None or not good(value):
            raise _invalid(f"lifecycle.rule.condition.{name}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_date(value: Any) -> bool:
    try:
        parse_timestamp(f"{value}T00:00:00Z")
    except ValueError:
        return False
    return True


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


CONDITIONS = {
    "age": _is_count,
    "createdBefore": _is_date,
    "customTimeBefore": _is_date,
    "daysSinceCustomTime": _is_count,
    "daysSinceNoncurrentTime": _is_count,
    "isLive": _is_flag,
    "matchesPrefix": _are_texts,
    "matchesStorageClass": _are_texts,
    "matchesSuffix": _are_texts,
    "noncurrentTimeBefore": _is_date,
    "numNewerVersions": _is_count,
}
"""Condition of a lifecycle rule -> whether a value can be meant."""


def _seconds(policy: dict[str, Any], name: str, field: str) -> int:
    text = str(policy.get(name, ""))
    if not text.isdecimal() or len(text) > 12:
        raise _invalid(f"{field}.{name}")
    return int(text)


def _invalid(field: str) -> GcsError:
    return invalid(f"Invalid value for field: {field}")
