"""Runs every minute: deletes expired sessions and soft-deleted objects, applies lifecycle rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tpuctl.sim.gcs.errors import GcsError, parse_timestamp
from tpuctl.sim.gcs.rules import ListQuery, Preconditions
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.store import Store, list_page
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.storage.upload_sessions import MultipartUpload
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, text_at

ABORT_UPLOADS = "AbortIncompleteMultipartUpload"
INTERVAL = 60.0
"""Seconds between two runs; Cloud Storage takes up to a day for a lifecycle rule."""

_log = logging.getLogger(__name__)


async def run_once(store: Store, now: datetime) -> None:
    """Run the task as of `now`; between its steps other tasks run."""
    store.delete_expired()
    for _ in apply_lifecycle(store, now):
        await asyncio.sleep(0)


async def run_forever(store: Store) -> None:
    """Run the task every minute until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL)
        try:
            await run_once(store, datetime.now(UTC))
        except Exception:
            _log.exception("a background task failed; it is retried in a minute")


# Applies lifecycle rules as of a given time, https://cloud.google.com/storage/docs/lifecycle.


@dataclass(frozen=True)
class Candidate:
    """An object to which rules may apply; `newer` is the number of newer generations of its name."""

    stored: StoredObject
    newer: int
    now: datetime

    def days_since(self, stamp: str | None) -> float:
        """Return the days since a timestamp; below zero without one."""
        return (self.now - parse_timestamp(stamp)) / timedelta(days=1) if stamp else -1.0


MINIMUMS: dict[str, Callable[[Candidate], float]] = {
    "age": lambda candidate: candidate.days_since(candidate.stored.created),
    "daysSinceCustomTime": lambda candidate: candidate.days_since(candidate.stored.text("customTime")),
    "daysSinceNoncurrentTime": lambda candidate: candidate.days_since(candidate.stored.deleted),
    "numNewerVersions": lambda candidate: candidate.newer,
}
"""Condition -> the number of an object that must be at least the condition's."""
TIMES: dict[str, Callable[[StoredObject], str | None]] = {
    "createdBefore": lambda stored: stored.created,
    "customTimeBefore": lambda stored: stored.text("customTime"),
    "noncurrentTimeBefore": lambda stored: stored.deleted,
}
"""Condition -> the time of an object that must be before midnight UTC of the condition's date."""
MATCHES: dict[str, Callable[[StoredObject, Sequence[str]], bool]] = {
    "matchesPrefix": lambda stored, prefixes: stored.name.startswith(tuple(prefixes)),
    "matchesStorageClass": lambda stored, classes: stored.storage_class in classes,
    "matchesSuffix": lambda stored, suffixes: stored.name.endswith(tuple(suffixes)),
}
"""Condition -> whether an object matches one of the condition's texts."""


def apply_lifecycle(store: Store, now: datetime) -> Iterator[None]:
    """Apply the rules of every bucket; yields after each page of objects."""
    for bucket in store.buckets.all():
        if bucket.lifecycle_rules:
            _abort_uploads(store, bucket, now)
            yield from _apply_to_objects(store, bucket, now)


def _apply_to_objects(store: Store, bucket: Bucket, now: datetime) -> Iterator[None]:
    query: ListQuery | None = ListQuery(versions=True)
    while query is not None:
        page = list_page(store.database, bucket.name, query)
        for stored in page.items:
            _apply_to(Candidate(stored, store.objects.count_newer(stored), now), store, bucket)
        query = ListQuery(versions=True, position=page.next) if page.next else None
        yield


def _apply_to(candidate: Candidate, store: Store, bucket: Bucket) -> None:
    actions = [object_at(rule, "action") for rule in bucket.lifecycle_rules if _applies(rule, candidate)]
    kinds = [text_at(action, "type") for action in actions]
    stored = candidate.stored
    try:
        if "Delete" in kinds:
            becomes_noncurrent = stored.live and bucket.versioned
            generation = None if becomes_noncurrent else stored.generation
            store.objects.delete(stored.bucket, stored.name, generation, Preconditions())
        elif "SetStorageClass" in kinds:
            storage_class = text_at(actions[kinds.index("SetStorageClass")], "storageClass")
            if storage_class not in ("", stored.storage_class):
                store.objects.set_storage_class(stored, storage_class)
    except GcsError:
        pass  # on hold, or changed meanwhile: the next run tries again


def _applies(rule: JsonObject, candidate: Candidate) -> bool:
    if object_at(rule, "action").get("type") == ABORT_UPLOADS:
        return False
    return all(_is_met(name, value, candidate) for name, value in object_at(rule, "condition").items())


def _is_met(name: str, value: JsonValue, candidate: Candidate) -> bool:
    """Whether an object meets one condition, whose value was checked when the bucket was changed."""
    stored = candidate.stored
    if name in MINIMUMS:
        return isinstance(value, int) and MINIMUMS[name](candidate) >= value
    if name in TIMES:
        time = TIMES[name](stored)
        return parse_timestamp(time) < parse_timestamp(f"{value}T00:00:00Z") if time else False
    if name in MATCHES:
        return isinstance(value, list) and MATCHES[name](stored, [str(text) for text in value])
    return stored.live is value  # isLive


def _abort_uploads(store: Store, bucket: Bucket, now: datetime) -> None:
    for rule in bucket.lifecycle_rules:
        if object_at(rule, "action").get("type") == ABORT_UPLOADS:
            for upload in store.multipart_uploads.in_bucket(bucket.name):
                if _is_expired(upload, object_at(rule, "condition"), now):
                    store.multipart_uploads.delete(upload)


def _is_expired(upload: MultipartUpload, condition: JsonObject, now: datetime) -> bool:
    days = condition.get("age", 0)
    return (
        isinstance(days, int)
        and (now - parse_timestamp(upload.created)) / timedelta(days=1) >= days
        and upload.name.startswith(_texts(condition, "matchesPrefix"))
        and upload.name.endswith(_texts(condition, "matchesSuffix"))
    )


def _texts(condition: JsonObject, name: str) -> tuple[str, ...]:
    texts = condition.get(name, [""])
    return tuple(str(text) for text in texts) if isinstance(texts, list) else ()
