"""One generation of an object, as a row of the database."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.timestamps import timestamp
from tpuctl.sim.json_values import JsonObject, object_at, text_at
from tpuctl.sim.state.transactions import SqlValue

COLUMNS = (
    "bucket, name, generation, live, metageneration, blob, size, crc32c, md5, components, "
    "created, updated, deleted, fields"
)


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
    fields: JsonObject

    @classmethod
    def of_row(
        cls,
        bucket: str,
        name: str,
        generation: int,
        live: int,
        metageneration: int,
        blob: str,
        size: int,
        crc32c: str,
        md5: str | None,
        components: int | None,
        created: str,
        updated: str,
        deleted: str | None,
        fields: str,
    ) -> StoredObject:
        """Build from the columns of `COLUMNS`."""
        return cls(
            bucket=bucket,
            name=name,
            generation=generation,
            live=bool(live),
            metageneration=metageneration,
            blob=blob,
            size=size,
            crc32c=crc32c,
            md5=md5,
            components=components,
            created=created,
            updated=updated,
            deleted=deleted,
            fields=json.loads(fields),
        )

    @classmethod
    def new(
        cls, bucket: str, name: str, generation: int, content: Content, fields: JsonObject
    ) -> StoredObject:
        """Return a new live object with these bytes, created now."""
        now = timestamp()
        return cls(
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

    @property
    def content(self) -> Content:
        """The bytes, which another object may share."""
        return Content(self.blob, self.size, self.crc32c, self.md5, self.components)

    @property
    def storage_class(self) -> str:
        return self.text("storageClass") or "STANDARD"

    @property
    def custom_metadata(self) -> dict[str, str]:
        """The metadata of the caller's own."""
        return {name: str(value) for name, value in object_at(self.fields, "metadata").items()}

    def text(self, field: str) -> str:
        """Return a field that holds text; nothing where it is not set."""
        return text_at(self.fields, field)

    def insert(self, database: Database, table: str = "objects", **columns: SqlValue) -> None:
        """Add the row to a table; `columns` are those besides `COLUMNS`."""
        values: dict[str, SqlValue] = {
            **vars(self),
            "live": int(self.live),
            "fields": json.dumps(self.fields),
            **columns,
        }
        marks = ", ".join("?" * len(values))
        database.execute(f"insert into {table} ({', '.join(values)}) values ({marks})", [*values.values()])

    def delete(self, database: Database, table: str = "objects") -> None:
        """Delete the row from a table."""
        database.execute(
            f"delete from {table} where bucket = ? and name = ? and generation = ?",
            (self.bucket, self.name, self.generation),
        )
