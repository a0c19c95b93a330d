"""Objects: their rows, generations, and the transactions that make every change all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tpuctl.sim.gcs.blobs import Blobs, Content
from tpuctl.sim.gcs.buckets import Buckets
from tpuctl.sim.gcs.clock import microseconds, timestamp
from tpuctl.sim.gcs.database import Database
from tpuctl.sim.gcs.errors import invalid, no_such_object
from tpuctl.sim.gcs.merging import patched
from tpuctl.sim.gcs.names import check_object_name
from tpuctl.sim.gcs.preconditions import Preconditions

SETTABLE = frozenset(
    {
        "cacheControl",
        "contentDisposition",
        "contentEncoding",
        "contentLanguage",
        "contentType",
        "customTime",
        "metadata",
    }
)
"""Fields that callers may set at any time."""

SETTABLE_ONCE = frozenset({"storageClass"})
"""Fields that only a write of the whole object may set."""

COLUMNS = (
    "bucket, name, generation, live, metageneration, blob, size, crc32c, md5, components, "
    "created, updated, deleted, fields"
)
COLUMN_NAMES = COLUMNS.split(", ")


@dataclass(frozen=True)
class StoredObject:
    """One generation of an object."""

    bucket: str
    name: str
    generation: int
    live: bool
    metageneration: int
    blob: str
    size: int
    crc32c: str
    md5: str | None
    components: int | None
    created: str
    updated: str
    deleted: str | None
    fields: dict[str, Any]

    @classmethod
    def of_row(cls, row: tuple[Any, ...]) -> StoredObject:
        """Build from a row of `COLUMNS`."""
        values: dict[str, Any] = dict(zip(COLUMN_NAMES, row, strict=True))
        return cls(**{**values, "live": bool(values["live"]), "fields": json.loads(values["fields"])})

    @property
    def content(self) -> Content:
        """The bytes, for another object to share."""
        return Content(self.blob, self.size, self.crc32c, self.md5, self.components)


class Objects:
    """The table of objects. No method awaits, so nothing comes between a check and its commit."""

    def __init__(self, database: Database, buckets: Buckets, blobs: Blobs) -> None:
        self._database = database
        self._buckets = buckets
        self._blobs = blobs
        newest = database.row("select max(generation) from objects")
        self._last_generation: int = (newest and newest[0]) or 0

    def find(self, bucket: str, name: str, generation: int | None = None) -> StoredObject | None:
        """Return the live object, or the generation asked for, or None."""
        query = f"select {COLUMNS} from objects where bucket = ? and name = ? and "
        if generation is None:
            row = self._database.row(query + "live = 1", (bucket, name))
        else:
            row = self._database.row(query + "generation = ?", (bucket, name, generation))
        return StoredObject.of_row(row) if row is not None else None

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
            self._retire_live(bucket, name)
            stored = _new(bucket, name, self._next_generation(), content, kept)
            self._insert(stored)
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
        return self.create(bucket, name, source.content, given or source.fields, conditions)

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
            kept = SETTABLE_ONCE if replace_all else SETTABLE | SETTABLE_ONCE
            base = {field: value for field, value in old.fields.items() if field in kept}
            fields = _checked(patched(base, changes, SETTABLE))
            new = replace(old, fields=fields, metageneration=old.metageneration + 1, updated=timestamp())
            self._database.execute(
                "update objects set fields = ?, metageneration = ?, updated = ? "
                "where bucket = ? and name = ? and generation = ?",
                (json.dumps(fields), new.metageneration, new.updated, new.bucket, new.name, new.generation),
            )
        return new

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
        self._database.execute(
            "update objects set live = 0, deleted = ? where bucket = ? and name = ? and generation = ?",
            (timestamp(), bucket, name, old.generation),
        )

    def _remove(self, old: StoredObject) -> None:
        self._database.execute(
            "delete from objects where bucket = ? and name = ? and generation = ?",
            (old.bucket, old.name, old.generation),
        )
        self._database.after_commit(lambda: self._blobs.discard(old.blob))

    def _insert(self, new: StoredObject) -> None:
        values = {**vars(new), "live": int(new.live), "fields": json.dumps(new.fields)}
        marks = ", ".join("?" * len(COLUMN_NAMES))
        self._database.execute(
            f"insert into objects ({COLUMNS}) values ({marks})", [values[name] for name in COLUMN_NAMES]
        )


def _check(conditions: Preconditions, found: StoredObject | None) -> None:
    conditions.check(found.generation if found else 0, found.metageneration if found else 0)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise invalid("Invalid value for field: metadata")
    for name in (SETTABLE | SETTABLE_ONCE) - {"metadata"}:
        value = fields.get(name, "")
        if not isinstance(value, str) or "\n" in value or "\r" in value:
            raise invalid(f"Invalid value for field: {name}")
    return fields


def _new(bucket: str, name: str, generation: int, content: Content, fields: dict[str, Any]) -> StoredObject:
    now = timestamp()
    return StoredObject(
        bucket=bucket,
        name=name,
        generation=generation,
        live=True,
        metageneration=1,
        blob=content.blob,
        size=content.size,
        crc32c=content.crc32c,
        md5=content.md5,
        components=content.components,
        created=now,
        updated=now,
        deleted=None,
        fields=fields,
    )
