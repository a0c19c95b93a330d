"""Lifecycle rules, https://cloud.google.com/storage/docs/lifecycle, carried out as of a given time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.listing import ListQuery, list_page
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import parse_timestamp


@dataclass(frozen=True)
class Candidate:
    """An object that rules are held against; `newer` is how many newer generations its name has."""

    stored: StoredObject
    newer: int
    now: datetime

    def days_since(self, stamp: str | None) -> float:
        """Return the days since a time; below zero where there was none."""
        return (self.now - parse_timestamp(stamp)) / timedelta(days=1) if stamp else -1.0

    def is_before(self, stamp: str | None, date: str) -> bool:
        """Whether a time lies before midnight UTC of a date."""
        return stamp is not None and parse_timestamp(stamp) < parse_timestamp(f"{date}T00:00:00Z")

    @property
    def storage_class(self) -> str:
        return str(self.stored.fields.get("storageClass", "STANDARD"))


CONDITIONS: dict[str, Callable[[Candidate, Any], bool]] = {
    "age": lambda one, days: one.days_since(one.stored.created) >= days,
    "createdBefore": lambda one, date: one.is_before(one.stored.created, date),
    "customTimeBefore": lambda one, date: one.is_before(one.stored.fields.get("customTime"), date),
    "daysSinceCustomTime": lambda one, days: one.days_since(one.stored.fields.get("customTime")) >= days,
    "daysSinceNoncurrentTime": lambda one, days: one.days_since(one.stored.deleted) >= days,
    "isLive": lambda one, live: one.stored.live is live,
    "matchesPrefix": lambda one, prefixes: one.stored.name.startswith(tuple(prefixes)),
    "matchesStorageClass": lambda one, classes: one.storage_class in classes,
    "matchesSuffix": lambda one, suffixes: one.stored.name.endswith(tuple(suffixes)),
    "noncurrentTimeBefore": lambda one, date: one.is_before(one.stored.deleted, date),
    "numNewerVersions": lambda one, count: one.newer >= count,
}
"""Condition -> whether an object meets it."""


def apply_lifecycle(store: Store, now: datetime) -> Iterator[None]:
    """Carry out the rules of every bucket; yields between pages, for others to have their turn."""
    for bucket in store.buckets.all():
        rules = bucket.fields.get("lifecycle", {}).get("rule", [])
        if rules:
            _abort_uploads(store, bucket, rules, now)
            yield from _apply(store, bucket, rules, now)


def _apply(store: Store, bucket: Bucket, rules: list[dict[str, Any]], now: datetime) -> Iterator[None]:
    query: ListQuery | None = ListQuery(versions=True)
    while query is not None:
        page = list_page(store.database, bucket.name, query)
        for stored in page.items:
            newer = store.objects.count_newer(stored)
            _act(store, bucket, rules, Candidate(stored, newer, now))
        query = ListQuery(versions=True, position=page.next) if page.next else None
        yield


def _act(store: Store, bucket: Bucket, rules: list[dict[str, Any]], candidate: Candidate) -> None:
    actions = [rule["action"] for rule in rules if _fits(rule, candidate)]
    kinds = {action["type"] for action in actions}
    stored = candidate.stored
    try:
        if "Delete" in kinds:
            archives = stored.live and bucket.versioned
            store.objects.delete(
                stored.bucket, stored.name, None if archives else stored.generation, Preconditions()
            )
        elif "SetStorageClass" in kinds:
            wanted = next(one for one in actions if one["type"] == "SetStorageClass").get("storageClass")
            if isinstance(wanted, str) and wanted != candidate.storage_class:
                store.objects.set_storage_class(stored, wanted)
    except GcsError:
        pass  # held, or changed meanwhile: the next round looks again


def _fits(rule: dict[str, Any], candidate: Candidate) -> bool:
    if rule["action"]["type"] == "AbortIncompleteMultipartUpload":
        return False
    return all(CONDITIONS[name](candidate, value) for name, value in rule["condition"].items())


def _abort_uploads(store: Store, bucket: Bucket, rules: list[dict[str, Any]], now: datetime) -> None:
    for rule in rules:
        if rule["action"]["type"] != "AbortIncompleteMultipartUpload":
            continue
        condition = rule["condition"]
        for upload in store.multiparts.in_bucket(bucket.name):
            age = (now - parse_timestamp(upload.created)) / timedelta(days=1)
            if age >= condition.get("age", 0) and (
                upload.name.startswith(tuple(condition.get("matchesPrefix", [""])))
                and upload.name.endswith(tuple(condition.get("matchesSuffix", [""])))
            ):
                store.multiparts.drop(upload)
