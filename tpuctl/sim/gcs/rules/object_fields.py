"""Checks the fields of an object that callers may set."""

from __future__ import annotations

from tpuctl.sim.gcs.errors import invalid_field
from tpuctl.sim.gcs.rules.acl_entries import checked_acl
from tpuctl.sim.gcs.timestamps import parse_timestamp
from tpuctl.sim.json_values import JsonObject, JsonValue

SETTABLE_ONCE = frozenset({"storageClass"})
"""Fields that only the write of the object's bytes may set."""

TEXTS = SETTABLE_ONCE | {
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
}

SETTABLE = (TEXTS | {"acl", "eventBasedHold", "metadata", "retention", "temporaryHold"}) - SETTABLE_ONCE
"""Fields that callers may set at any time."""

HOLDS = {"temporaryHold": "Temporary", "eventBasedHold": "Event-Based"}
"""Field of an object -> the name of the hold in errors."""

RETENTION_MODES = ("Unlocked", "Locked")


def checked_object_fields(fields: JsonObject) -> JsonObject:
    """Return the fields with their ACL in its stored form; raises 400 for an invalid value."""
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise invalid_field("metadata")
    for name in TEXTS:
        text = fields.get(name, "")
        if not isinstance(text, str) or "\n" in text or "\r" in text:
            raise invalid_field(name)
    for name in HOLDS:
        if not isinstance(fields.get(name, False), bool):
            raise invalid_field(name)
    if "acl" in fields:
        fields["acl"] = checked_acl(fields["acl"])
    if fields.get("retention"):
        _check_retention(fields["retention"])
    return fields


def _check_retention(retention: JsonValue) -> None:
    if not isinstance(retention, dict) or retention.get("mode") not in RETENTION_MODES:
        raise invalid_field("retention.mode")
    until = retention.get("retainUntilTime")
    try:
        parse_timestamp(until if isinstance(until, str) else "")
    except ValueError as error:
        raise invalid_field("retention.retainUntilTime") from error
