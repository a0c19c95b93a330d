"""Decides until when holds and retention keep an object from being deleted or replaced."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.object_fields import HOLDS
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import parse_timestamp, timestamp
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, text_at

RELEASED = "eventBasedHoldReleased"
"""Field, in no response: when an event-based hold ended, which is when the retention period begins."""


def check_archivable(stored: StoredObject) -> None:
    """Raise 403 while an object is on hold: it may not even become noncurrent."""
    for field, label in HOLDS.items():
        if stored.fields.get(field):
            raise GcsError(
                403,
                f"Object '{stored.bucket}/{stored.name}' is under active {label} hold and cannot be deleted, "
                "overwritten or archived until hold is removed.",
                reason="objectUnderActiveHold",
            )


def check_deletable(stored: StoredObject, bucket: Bucket) -> None:
    """Raise 403 while an object is on hold or in its retention period."""
    check_archivable(stored)
    until = retained_until(stored, bucket)
    if until is not None and until > datetime.now(UTC):
        raise GcsError(
            403,
            f"Object '{stored.bucket}/{stored.name}' is subject to bucket's retention policy or object "
            f"retention and cannot be deleted or overwritten until {timestamp(until)}",
            reason="retentionPolicyNotMet",
        )


def retained_until(stored: StoredObject, bucket: Bucket) -> datetime | None:
    """Return when the longer of the bucket's and the object's retention ends; None for neither."""
    ends = []
    if bucket.retention_seconds and not stored.fields.get("eventBasedHold"):
        start = parse_timestamp(stored.text(RELEASED) or stored.created)
        ends.append(start + timedelta(seconds=bucket.retention_seconds))
    until = text_at(object_at(stored.fields, "retention"), "retainUntilTime")
    if until:
        ends.append(parse_timestamp(until))
    return max(ends, default=None)


def with_release(old: Mapping[str, JsonValue], new: JsonObject) -> JsonObject:
    """Return an object's new fields, with the time if its event-based hold ends with them."""
    if old.get("eventBasedHold") and not new.get("eventBasedHold"):
        return {**new, RELEASED: timestamp()}
    return new
