"""Holds and retention: what keeps an object from being deleted or replaced, and until when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import parse_timestamp, timestamp

HOLDS = {"temporaryHold": "Temporary", "eventBasedHold": "Event-Based"}
"""Field of an object -> what the error calls it."""

RELEASED = "eventBasedHoldReleased"
"""Field, never shown, that keeps when an event-based hold ended: the retention period begins there."""

MODES = ("Unlocked", "Locked")


def check_archivable(stored: StoredObject) -> None:
    """Raise 403 while a hold is on an object: it may not even become noncurrent."""
    for field, label in HOLDS.items():
        if stored.fields.get(field):
            raise GcsError(
                403,
                f"Object '{stored.bucket}/{stored.name}' is under active {label} hold and cannot be deleted, "
                "overwritten or archived until hold is removed.",
                reason="objectUnderActiveHold",
            )


def check_removable(stored: StoredObject, bucket: Bucket) -> None:
    """Raise 403 while a hold or a retention period keeps an object."""
    check_archivable(stored)
    until = kept_until(stored, bucket)
    if until is not None and until > datetime.now(UTC):
        raise GcsError(
            403,
            f"Object '{stored.bucket}/{stored.name}' is subject to bucket's retention policy or object "
            f"retention and cannot be deleted or overwritten until {timestamp(until)}",
            reason="retentionPolicyNotMet",
        )


def kept_until(stored: StoredObject, bucket: Bucket) -> datetime | None:
    """Return when the longer of the bucket's and the object's retention ends; None for neither."""
    ends = []
    period = bucket.fields.get("retentionPolicy", {}).get("retentionPeriod")
    if period and not stored.fields.get("eventBasedHold"):
        start = stored.fields.get(RELEASED, stored.created)
        ends.append(parse_timestamp(start) + timedelta(seconds=int(period)))
    until = stored.fields.get("retention", {}).get("retainUntilTime")
    if until:
        ends.append(parse_timestamp(until))
    return max(ends, default=None)


def with_release(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Note in an object's new fields that its event-based hold has ended, if it has."""
    if old.get("eventBasedHold") and not new.get("eventBasedHold"):
        return {**new, RELEASED: timestamp()}
    return new


def checked_retention(value: Any) -> dict[str, str]:
    """Return an object's `retention` if it can be meant; raise 400 if not."""
    if not isinstance(value, dict) or value.get("mode") not in MODES:
        raise invalid("Invalid value for field: retention.mode")
    _time(value.get("retainUntilTime"), "retention.retainUntilTime")
    return value


def _time(value: Any, field: str) -> None:
    try:
        parse_timestamp(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise invalid(f"Invalid value for field: {field}") from error
