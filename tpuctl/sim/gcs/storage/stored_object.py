"""One generation of an object, as the database keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.timestamps import timestamp

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
    fields: dict[str, Any]

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
            bucket,
            name,
            generation,
            bool(live),
            metageneration,
            blob,
            size,
            crc32c,
            md5,
            components,
            created,
            updated,
            deleted,
            json.loads(fields),
        )

    @classmethod
    def new(
        cls, bucket: str, name: str, generation: int, content: Content, fields: dict[str, Any]
    ) -> StoredObject:
        """Give whole bytes a name, as the live object, as of now."""
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
        """The bytes, for another object to share."""
        return Content(self.blob, self.size, self.crc32c, self.md5, self.components)

    def insert(self, database: Database, table: str = "objects", **more: Any) -> None:
        """Add the row to a table; `more` are columns besides `COLUMNS`."""
        values = {**vars(self), "live": int(self.live), "fields": json.dumps(self.fields), **more}
        marks = ", ".join("?" * len(values))
        database.execute(f"insert into {table} ({', '.join(values)}) values ({marks})", [*values.values()])

    def remove(self, database: Database, table: str = "objects") -> None:
        """Take the row out of a table."""
        database.execute(
            f"delete from {table} where bucket = ? and name = ? and generation = ?",
            (self.bucket, self.name, self.generation),
        )
