"""Checks the fields of a bucket that callers may set."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.sim.gcs.errors import GcsError, invalid, invalid_field
from tpuctl.sim.gcs.rules.access_modes import PREVENTION
from tpuctl.sim.gcs.rules.acl_entries import checked_acl
from tpuctl.sim.gcs.rules.encryption import refuse_default_key
from tpuctl.sim.gcs.timestamps import parse_timestamp, timestamp
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, text_at

ACTIONS = frozenset({"Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"})
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
"""Fields that are stored; versioning, lifecycle, soft delete, holds, retention, requester pays and ACLs have
effect."""

SETTABLE_ONCE = frozenset({"location", "customPlacementConfig", "hierarchicalNamespace", "objectRetention"})
"""Fields that only the creation of the bucket may set."""

UNSUPPORTED = ("hierarchicalNamespace", "ipFilter")
"""Fields that are refused where they are switched on."""

AUTOCLASS_TIMES = (
    ("enabled", "toggleTime"),
    ("terminalStorageClass", "terminalStorageClassUpdateTime"),
)
"""Field of `autoclass` -> the field with the time of its last change."""

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
ACLS = {"acl", "defaultObjectAcl"}

LONGEST_RETENTION = 3_155_760_000
"""Seconds: a hundred years."""

SOFT_DELETE_PERIODS = range(7 * 86400, 90 * 86400 + 1)
"""Seconds; 0 switches soft delete off."""

_TYPES: tuple[tuple[tuple[str, ...], type], ...] = ((OBJECTS, dict), (TEXTS, str), (LISTS, list))


def checked_bucket_fields(fields: JsonObject) -> JsonObject:
    """Return the fields with policies and ACLs in their stored form; raises 400 for an invalid value."""
    for names, kind in _TYPES:
        for name in names:
            if name in fields and not isinstance(fields[name], kind):
                raise invalid_field(name)
    if not all(isinstance(label, str) for label in object_at(fields, "labels").values()):
        raise invalid_field("labels")
    refuse_default_key(object_at(fields, "encryption"))
    _check_access(object_at(fields, "iamConfiguration"))
    if "retentionPolicy" in fields:
        fields["retentionPolicy"] = _retention_policy(object_at(fields, "retentionPolicy"))
    if "softDeletePolicy" in fields:
        fields["softDeletePolicy"] = _soft_delete_policy(object_at(fields, "softDeletePolicy"))
    for name in ACLS & set(fields):
        fields[name] = checked_acl(fields[name])
    check_lifecycle(object_at(fields, "lifecycle"))
    return fields


def check_retention_change(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> None:
    """Raise 403 when new fields of a bucket remove or shorten its locked retention policy."""
    policy = object_at(old, "retentionPolicy")
    period = text_at(object_at(new, "retentionPolicy"), "retentionPeriod", "0")
    if policy.get("isLocked") and int(period) < int(text_at(policy, "retentionPeriod", "0")):
        raise GcsError(403, "Cannot reduce retention duration of a locked Retention Policy for bucket.")


def _check_access(configuration: JsonObject) -> None:
    if configuration.get("publicAccessPrevention", "inherited") not in PREVENTION:
        raise invalid_field("iamConfiguration.publicAccessPrevention")


def with_autoclass_times(fields: JsonObject, old: Mapping[str, JsonValue]) -> JsonObject:
    """Return fields in which Autoclass has its default class, and the times of what differs from `old`."""
    if "autoclass" not in fields:
        return fields
    before, autoclass = object_at(old, "autoclass"), dict(object_at(fields, "autoclass"))
    if autoclass.get("enabled"):
        autoclass.setdefault("terminalStorageClass", "NEARLINE")
    for name, time in AUTOCLASS_TIMES:
        if autoclass.get(name) != before.get(name):
            autoclass[time] = timestamp()
    return {**fields, "autoclass": autoclass}


def refuse_unsupported(changes: Mapping[str, JsonValue]) -> None:
    """Raise 501 for fields that would have no effect, so that no caller relies on them."""
    for name in UNSUPPORTED:
        if object_at(changes, name).get("enabled") or object_at(changes, name).get("mode"):
            raise GcsError(501, f"The simulator has no {name} of buckets; see docs/simulator.md.")


def _retention_policy(policy: JsonObject) -> JsonObject:
    period = _seconds(policy, "retentionPeriod", "retentionPolicy")
    if not 0 < period <= LONGEST_RETENTION:
        raise invalid_field("retentionPolicy.retentionPeriod")
    effective = policy.get("effectiveTime") or timestamp()
    locked = bool(policy.get("isLocked"))
    return {"retentionPeriod": str(period), "effectiveTime": effective, "isLocked": locked}


def _soft_delete_policy(policy: JsonObject) -> JsonObject:
    seconds = _seconds(policy, "retentionDurationSeconds", "softDeletePolicy")
    if seconds and seconds not in SOFT_DELETE_PERIODS:
        raise invalid_field("softDeletePolicy.retentionDurationSeconds")
    effective = policy.get("effectiveTime") or timestamp()
    return {"retentionDurationSeconds": str(seconds), "effectiveTime": effective}


def _seconds(policy: JsonObject, name: str, field: str) -> int:
    text = str(policy.get(name, ""))
    if not text.isdecimal() or len(text) > 12:
        raise invalid_field(f"{field}.{name}")
    return int(text)


# Checks a bucket's lifecycle rules, https://cloud.google.com/storage/docs/lifecycle.


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
