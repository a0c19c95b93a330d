"""One generation of an object, as a row of the database.

- Access control lists, stored but not enforced: defaults, predefined ACLs, changes of an entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tpuctl.sim.gcs.errors import GcsError, invalid, timestamp
from tpuctl.sim.gcs.rules import AclEntry, checked_acl
from tpuctl.sim.gcs.storage.blobs import Content, Database
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.json_values import JsonObject, object_at, text_at
from tpuctl.sim.state import SqlValue
from tpuctl.sim.token_server import project_number

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


TEAMS = ("owners", "editors", "viewers")

DEFAULT_ROLES = ("OWNER", "OWNER", "READER")
"""Of the project's owners, editors and viewers."""

PREDEFINED: dict[str, tuple[AclEntry, ...]] = {
    "private": (),
    "projectPrivate": (),
    "bucketOwnerRead": (),
    "bucketOwnerFullControl": (),
    "authenticatedRead": ({"entity": "allAuthenticatedUsers", "role": "READER"},),
    "publicRead": ({"entity": "allUsers", "role": "READER"},),
    "publicReadWrite": ({"entity": "allUsers", "role": "WRITER"},),
}
"""Name of a predefined ACL -> its entries besides those of the project."""


def project_acl(project: str) -> list[AclEntry]:
    """Return the entries that a new bucket and its objects have."""
    number = project_number(project)
    return [
        {"entity": f"project-{team}-{number}", "role": role}
        for team, role in zip(TEAMS, DEFAULT_ROLES, strict=True)
    ]


def bucket_acl(bucket: Bucket, field: str = "acl") -> list[AclEntry]:
    """Return a bucket's own ACL, or with `defaultObjectAcl` that of its new objects."""
    return checked_acl(bucket.fields[field]) if field in bucket.fields else project_acl(bucket.project)


def object_acl(bucket: Bucket, stored: StoredObject) -> list[AclEntry]:
    """Return an object's ACL."""
    if "acl" in stored.fields:
        return checked_acl(stored.fields["acl"])
    return bucket_acl(bucket, "defaultObjectAcl")


def predefined_acl(name: str, bucket: Bucket) -> list[AclEntry]:
    """Return the entries of a predefined ACL; raises 400 for an unknown name."""
    check_acls_are_on(bucket)
    if name not in PREDEFINED:
        raise invalid(f"Invalid predefined ACL: {name}")
    return [*project_acl(bucket.project), *PREDEFINED[name]]


def check_acls_are_on(bucket: Bucket) -> None:
    """Raise 400 if uniform bucket-level access has switched ACLs off."""
    if bucket.has_uniform_access:
        raise GcsError(
            400,
            "Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled. "
            "Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access",
        )


def with_entry(acl: list[AclEntry], entry: AclEntry) -> list[AclEntry]:
    """Return an ACL with one entry added, or in place of the same entity's."""
    return [other for other in acl if other["entity"] != entry["entity"]] + [entry]
