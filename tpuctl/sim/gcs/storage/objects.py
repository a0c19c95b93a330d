"""Objects: their rows, generations, and the transactions that make every change all or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tpuctl.sim.gcs.errors import invalid, no_such_object
from tpuctl.sim.gcs.rules.bucket_fields import checked_acl
from tpuctl.sim.gcs.rules.merge_patch import patched
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Content
from tpuctl.sim.gcs.storage.buckets import Buckets
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.retention import (
    HOLDS,
    RELEASED,
    check_archivable,
    check_removable,
    checked_retention,
    with_release,
)
from tpuctl.sim.gcs.storage.soft_deletes import SoftDeletes
from tpuctl.sim.gcs.storage.stored_object import COLUMNS, StoredObject
from tpuctl.sim.gcs.timestamps import microseconds, timestamp

SETTABLE_ONCE = frozenset({"storageClass"})
"""Fields that only a write of the whole object may set."""

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

NOT_COPIED = frozenset({"acl", "eventBasedHold", "retention", "temporaryHold", RELEASED})
"""Fields that belong to one generation; a copy starts without them."""


class Objects:
    """The table of objects. No method awaits, so nothing comes between a check and its commit."""

    def __init__(self, database: Database, buckets: Buckets, blobs: Blobs) -> None:
        self._database = database
        self._buckets = buckets
        self._blobs = blobs
        self.soft_deletes = SoftDeletes(database, blobs)
        self.watchers: list[Callable[[StoredObject], None]] = []
        """Told of each object once it is there."""
        newest = (
            database.row(int, f"select coalesce(max(generation), 0) from {table}")
            for table in ("objects", "soft_deleted")
        )
        self._last_generation = max(generation or 0 for generation in newest)

    def find(self, bucket: str, name: str, generation: int | None = None) -> StoredObject | None:
        """Return the live object, or the generation asked for, or None."""
        query = f"select {COLUMNS} from objects where bucket = ? and name = ? and "
        if generation is None:
            return self._database.row(StoredObject.of_row, query + "live = 1", (bucket, name))
        return self._database.row(StoredObject.of_row, query + "generation = ?", (bucket, name, generation))

    def get(self, bucket: str, name: str, generation: int | None = None) -> StoredObject:
        """Return the live object, or the generation asked for; raises 404."""
        found = self.find(bucket, name, generation)
        if found is None:
            self._buckets.get(bucket)
            raise no_such_object(bucket, name)
        return found

    def check(self, bucket: str, name: str, conditions: Preconditions) -> None:
        """Raise 404 without the bucket, 412 unless the conditions for a write hold now."""
        self._buckets.get(bucket)
        _check(conditions, self.find(bucket, name))

    def create(
        self, bucket: str, name: str, content: Content, fields: Mapping[str, Any], conditions: Preconditions
    ) -> StoredObject:
        """Name whole bytes: the object is the old one until this commits, the new one after."""
        check_object_name(name)
        kept = _checked(patched({}, fields, SETTABLE | SETTABLE_ONCE))
        kept.setdefault("contentType", "application/octet-stream")
        with self._database.transaction():
            self.check(bucket, name, conditions)
            if self._buckets.get(bucket).fields.get("defaultEventBasedHold"):
                kept.setdefault("eventBasedHold", True)
            self._retire_live(bucket, name)
            stored = StoredObject.new(bucket, name, self._next_generation(), content, kept)
            stored.insert(self._database)
            for tell in self.watchers:
                self._database.after_commit(partial(tell, stored))
        return stored

    def copy(
        self,
        source: StoredObject,
        bucket: str,
        name: str,
        fields: Mapping[str, Any],
        conditions: Preconditions,
    ) -> StoredObject:
        """Give an object's bytes a second name; fields are the source's unless some are given."""
        given = patched({}, fields, SETTABLE | SETTABLE_ONCE)
        kept = {field: value for field, value in source.fields.items() if field not in NOT_COPIED}
        return self.create(bucket, name, source.content, given or kept, conditions)

    def restore(self, bucket: str, name: str, generation: int, conditions: Preconditions) -> StoredObject:
        """Make a soft-deleted object live again, as a new generation; raises 404."""
        with self._database.transaction():
            self._buckets.get(bucket)
            buried = self.soft_deletes.get(bucket, name, generation)
            restored = self.copy(buried, bucket, name, {}, conditions)
            self.soft_deletes.forget(buried)
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
        changes: Mapping[str, Any],
        conditions: Preconditions,
        *,
        replace_all: bool = False,
    ) -> StoredObject:
        """Lay changes over an object's fields; with `replace_all`, over nothing but its storage class."""
        with self._database.transaction():
            old = self.get(old.bucket, old.name, old.generation)
            _check(conditions, old)
            kept = SETTABLE_ONCE if replace_all else SETTABLE | SETTABLE_ONCE | {RELEASED}
            base = {field: value for field, value in old.fields.items() if field in kept}
            fields = with_release(old.fields, _checked(patched(base, changes, SETTABLE)))
            new = replace(old, fields=fields, metageneration=old.metageneration + 1, updated=timestamp())
            self._database.execute(
                "update objects set fields = ?, metageneration = ?, updated = ? "
                "where bucket = ? and name = ? and generation = ?",
                (json.dumps(fields), new.metageneration, new.updated, new.bucket, new.name, new.generation),
            )
        return new

    def set_storage_class(self, old: StoredObject, storage_class: str) -> None:
        """Change what only a rewrite can otherwise: this is for lifecycle rules."""
        fields = {**old.fields, "storageClass": storage_class}
        with self._database.transaction():
            self._database.execute(
                "update objects set fields = ?, metageneration = metageneration + 1, updated = ? "
                "where bucket = ? and name = ? and generation = ?",
                (json.dumps(fields), timestamp(), old.bucket, old.name, old.generation),
            )

    def count_newer(self, old: StoredObject) -> int:
        """Return how many newer generations of an object there are."""
        query = "select count(*) from objects where bucket = ? and name = ? and generation > ?"
        return self._database.row(int, query, (old.bucket, old.name, old.generation)) or 0

    def delete(self, bucket: str, name: str, generation: int | None, conditions: Preconditions) -> None:
        """Remove a generation, or the live object (which stays noncurrent in a versioned bucket)."""
        with self._database.transaction():
            old = self.get(bucket, name, generation)
            _check(conditions, old)
            if generation is None:
                self._retire_live(bucket, name)
            else:
                self._remove(old)

    def _next_generation(self) -> int:
        self._last_generation = max(self._last_generation + 1, microseconds())
        return self._last_generation

    def _retire_live(self, bucket: str, name: str) -> None:
        old = self.find(bucket, name)
        if old is None:
            return
        if not self._buckets.get(bucket).versioned:
            self._remove(old)
            return
        check_archivable(old)
        self._database.execute(
            "update objects set live = 0, deleted = ? where bucket = ? and name = ? and generation = ?",
            (timestamp(), bucket, name, old.generation),
        )

    def _remove(self, old: StoredObject) -> None:
        bucket = self._buckets.get(old.bucket)
        check_removable(old, bucket)
        old.remove(self._database)
        if bucket.soft_delete_seconds:
            self.soft_deletes.bury(old, bucket.soft_delete_seconds)
        else:
            self._database.after_commit(lambda: self._blobs.discard(old.blob))


def _check(conditions: Preconditions, found: StoredObject | None) -> None:
    conditions.check(found.generation if found else 0, found.metageneration if found else 0)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise invalid("Invalid value for field: metadata")
    for name in TEXTS:
        value = fields.get(name, "")
        if not isinstance(value, str) or "\n" in value or "\r" in value:
            raise invalid(f"Invalid value for field: {name}")
    for name in HOLDS:
        if not isinstance(fields.get(name, False), bool):
            raise invalid(f"Invalid value for field: {name}")
    if "acl" in fields:
        fields["acl"] = checked_acl(fields["acl"])
    if fields.get("retention"):
        checked_retention(fields["retention"])
    return fields
