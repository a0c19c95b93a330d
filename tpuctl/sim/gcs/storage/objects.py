"""Objects as rows of the database, changed by transactions; json_api/ and xml_api/ have the operations.

- Decides until when holds and retention keep an object from being deleted or replaced.
- Deleted objects that can still be restored, https://cloud.google.com/storage/docs/soft-delete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from tpuctl.sim.gcs.errors import GcsError, microseconds, no_such_object, parse_timestamp, timestamp
from tpuctl.sim.gcs.rules import (
    HOLDS,
    SETTABLE,
    SETTABLE_ONCE,
    Preconditions,
    check_acl_change,
    check_object_name,
    checked_object_fields,
    merge_patch,
    refuse_key_of_object,
)
from tpuctl.sim.gcs.storage.blobs import Blobs, Content, Database
from tpuctl.sim.gcs.storage.buckets import Bucket, Buckets
from tpuctl.sim.gcs.storage.stored_object import COLUMNS, StoredObject
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


TABLE = "soft_deleted"


class SoftDeletes:
    """The table of soft-deleted objects."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs

    def add(self, stored: StoredObject, seconds: int) -> None:
        """Keep a deleted object for some seconds."""
        now = datetime.now(UTC)
        end = now + timedelta(seconds=seconds)
        times = {"softDeleteTime": timestamp(now), "hardDeleteTime": timestamp(end)}
        deleted = replace(stored, live=False, fields={**stored.fields, **times})
        deleted.insert(self._database, TABLE, expires=end.timestamp())

    def get(self, bucket: str, name: str, generation: int) -> StoredObject:
        """Return a soft-deleted object; raises 404."""
        query = f"select {COLUMNS} from {TABLE} where bucket = ? and name = ? and generation = ?"
        stored = self._database.row(StoredObject.of_row, query, (bucket, name, generation))
        if stored is None:
            raise no_such_object(bucket, name)
        return stored

    def delete(self, stored: StoredObject) -> None:
        """Delete a soft-deleted object for good."""
        with self._database.transaction():
            stored.delete(self._database, TABLE)
            self._database.after_commit(lambda: self._blobs.discard(stored.blob))

    def delete_bucket(self, bucket: str) -> None:
        """Delete all soft-deleted objects of a bucket."""
        self._delete_where("bucket = ?", bucket)

    def delete_expired(self, now: float) -> None:
        """Delete the objects whose time to be restored is over; `now` is in seconds since 1970."""
        self._delete_where("expires <= ?", now)

    def _delete_where(self, condition: str, value: str | float) -> None:
        query = f"select {COLUMNS} from {TABLE} where {condition}"
        with self._database.transaction():
            for stored in list(self._database.rows(StoredObject.of_row, query, (value,))):
                self.delete(stored)


NOT_COPIED = frozenset({"acl", "eventBasedHold", "retention", "temporaryHold", RELEASED})
"""Fields that belong to one generation and are not copied."""

OCTETS = "application/octet-stream"


class Objects:
    """The table of objects. No method awaits, so nothing happens between a check and its commit."""

    def __init__(self, database: Database, buckets: Buckets, blobs: Blobs) -> None:
        self._database = database
        self._buckets = buckets
        self._blobs = blobs
        self.soft_deletes = SoftDeletes(database, blobs)
        self.watchers: list[Callable[[StoredObject], None]] = []
        """Called with each new object after its commit."""
        self.before_replacing: Callable[[StoredObject], None] = lambda old: None
        """Called with a live object that is about to be overwritten; raises GcsError to keep it."""
        newest = (
            database.row(int, f"select coalesce(max(generation), 0) from {table}")
            for table in ("objects", "soft_deleted")
        )
        self._last_generation = max(generation or 0 for generation in newest)

    def find(self, bucket: str, name: str, generation: int | None = None) -> StoredObject | None:
        """Return the live object or one generation, or None."""
        query = f"select {COLUMNS} from objects where bucket = ? and name = ? and "
        if generation is None:
            return self._database.row(StoredObject.of_row, query + "live = 1", (bucket, name))
        return self._database.row(StoredObject.of_row, query + "generation = ?", (bucket, name, generation))

    def get(self, bucket: str, name: str, generation: int | None = None) -> StoredObject:
        """Return the live object or one generation; raises 404."""
        stored = self.find(bucket, name, generation)
        if stored is None:
            self._buckets.get(bucket)
            raise no_such_object(bucket, name)
        return stored

    def check(self, bucket: str, name: str, conditions: Preconditions) -> None:
        """Raise 404 without the bucket, 412 unless the conditions for a write hold now."""
        self._buckets.get(bucket)
        _check(conditions, self.find(bucket, name))

    def create(
        self,
        bucket: str,
        name: str,
        content: Content,
        fields: Mapping[str, JsonValue],
        conditions: Preconditions,
        *,
        content_type: str | None = OCTETS,
    ) -> StoredObject:
        """Create an object of these bytes: until the commit readers get the old object, then the new one.

        `content_type` is that of an object whose fields have none.
        """
        check_object_name(name)
        refuse_key_of_object(fields)
        settable = checked_object_fields(merge_patch({}, fields, SETTABLE | SETTABLE_ONCE))
        if content_type:
            settable.setdefault("contentType", content_type)
        with self._database.transaction():
            self.check(bucket, name, conditions)
            check_acl_change(self._buckets.get(bucket).fields, settable)
            if self._buckets.get(bucket).fields.get("defaultEventBasedHold"):
                settable.setdefault("eventBasedHold", True)
            old = self.find(bucket, name)
            if old is not None:
                self.before_replacing(old)
            self._retire_live(bucket, name)
            stored = StoredObject.new(bucket, name, self._next_generation(), content, settable)
            stored.insert(self._database)
            for watcher in self.watchers:
                self._database.after_commit(partial(watcher, stored))
        return stored

    def copy(
        self,
        source: StoredObject,
        bucket: str,
        name: str,
        fields: Mapping[str, JsonValue],
        conditions: Preconditions,
    ) -> StoredObject:
        """Create an object that shares a source's bytes; `fields`, if any, replace those of the source."""
        replacing = merge_patch({}, fields, SETTABLE | SETTABLE_ONCE)
        copied = {field: value for field, value in source.fields.items() if field not in NOT_COPIED}
        return self.create(bucket, name, source.content, replacing or copied, conditions)

    def restore(self, bucket: str, name: str, generation: int, conditions: Preconditions) -> StoredObject:
        """Restore a soft-deleted object as a new live generation; raises 404."""
        with self._database.transaction():
            self._buckets.get(bucket)
            deleted = self.soft_deletes.get(bucket, name, generation)
            restored = self.copy(deleted, bucket, name, {}, conditions)
            self.soft_deletes.delete(deleted)
        return restored

    def move(
        self,
        source: StoredObject,
        name: str,
        source_conditions: Preconditions,
        conditions: Preconditions,
    ) -> StoredObject:
        """Rename within a bucket in one transaction."""
        with self._database.transaction():
            _check(source_conditions, source)
            moved = self.copy(source, source.bucket, name, {}, conditions)
            if name != source.name:
                self.delete(source.bucket, source.name, None, Preconditions())
        return moved

    def patch(
        self,
        old: StoredObject,
        changes: Mapping[str, JsonValue],
        conditions: Preconditions,
        *,
        replace_all: bool = False,
    ) -> StoredObject:
        """Change an object's fields; `replace_all` drops all other fields but the storage class."""
        with self._database.transaction():
            old = self.get(old.bucket, old.name, old.generation)
            _check(conditions, old)
            retained = SETTABLE_ONCE if replace_all else SETTABLE | SETTABLE_ONCE | {RELEASED}
            base = {field: value for field, value in old.fields.items() if field in retained}
            check_acl_change(self._buckets.get(old.bucket).fields, changes)
            changed = checked_object_fields(merge_patch(base, changes, SETTABLE))
            fields = with_release(old.fields, changed)
            new = replace(old, fields=fields, metageneration=old.metageneration + 1, updated=timestamp())
            self._database.execute(
                "update objects set fields = ?, metageneration = ?, updated = ? "
                "where bucket = ? and name = ? and generation = ?",
                (json.dumps(fields), new.metageneration, new.updated, new.bucket, new.name, new.generation),
            )
        return new

    def set_storage_class(self, old: StoredObject, storage_class: str) -> None:
        """Change the storage class in place, as lifecycle rules do; callers need a rewrite for it."""
        fields = {**old.fields, "storageClass": storage_class}
        with self._database.transaction():
            self._database.execute(
                "update objects set fields = ?, metageneration = metageneration + 1, updated = ? "
                "where bucket = ? and name = ? and generation = ?",
                (json.dumps(fields), timestamp(), old.bucket, old.name, old.generation),
            )

    def count_newer(self, old: StoredObject) -> int:
        """Return the number of newer generations of an object."""
        query = "select count(*) from objects where bucket = ? and name = ? and generation > ?"
        return self._database.row(int, query, (old.bucket, old.name, old.generation)) or 0

    def delete(self, bucket: str, name: str, generation: int | None, conditions: Preconditions) -> None:
        """Delete a generation, or the live object, which becomes noncurrent in a versioned bucket."""
        with self._database.transaction():
            old = self.get(bucket, name, generation)
            _check(conditions, old)
            if generation is None:
                self._retire_live(bucket, name)
            else:
                self._delete(old)

    def _next_generation(self) -> int:
        self._last_generation = max(self._last_generation + 1, microseconds())
        return self._last_generation

    def _retire_live(self, bucket: str, name: str) -> None:
        old = self.find(bucket, name)
        if old is None:
            return
        if not self._buckets.get(bucket).versioned:
            self._delete(old)
            return
        check_archivable(old)
        self._database.execute(
            "update objects set live = 0, deleted = ? where bucket = ? and name = ? and generation = ?",
            (timestamp(), bucket, name, old.generation),
        )

    def _delete(self, old: StoredObject) -> None:
        bucket = self._buckets.get(old.bucket)
        check_deletable(old, bucket)
        old.delete(self._database)
        if bucket.soft_delete_seconds:
            self.soft_deletes.add(old, bucket.soft_delete_seconds)
        else:
            self._database.after_commit(lambda: self._blobs.discard(old.blob))


def _check(conditions: Preconditions, stored: StoredObject | None) -> None:
    conditions.check(stored.generation if stored else 0, stored.metageneration if stored else 0)
