"""Multipart uploads of the XML API: their rows and parts, which outlive the process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Content
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.objects import Objects
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import timestamp


@dataclass(frozen=True)
class Multipart:
    """One multipart upload under way."""

    id: str
    bucket: str
    name: str
    fields: dict[str, Any]
    created: str


@dataclass(frozen=True)
class Part:
    """One part of a multipart upload, whole on disk."""

    multipart: str
    number: int
    blob: str
    size: int
    crc32c: str
    md5: str
    created: str

    @property
    def content(self) -> Content:
        """The bytes, to be put together with those of other parts."""
        return Content(self.blob, self.size, self.crc32c, self.md5)


class Multiparts:
    """The tables of multipart uploads and their parts."""

    def __init__(self, database: Database, objects: Objects, blobs: Blobs) -> None:
        self._database = database
        self._objects = objects
        self._blobs = blobs

    def start(self, bucket: str, name: str, fields: Mapping[str, Any]) -> Multipart:
        """Open an upload; raises 404 without the bucket."""
        self._objects.check(bucket, name, Preconditions())
        upload = Multipart(uuid.uuid4().hex, bucket, name, dict(fields), timestamp())
        with self._database.transaction():
            self._database.execute(
                "insert into multiparts values (?, ?, ?, ?, ?)",
                (upload.id, bucket, name, json.dumps(upload.fields), upload.created),
            )
        return upload

    def get(self, identity: str, bucket: str, name: str) -> Multipart:
        """Return an upload; raises 404 when it was completed or aborted, or never was."""
        query = "select * from multiparts where id = ? and bucket = ? and name = ?"
        upload = self._database.row(_of_row, query, (identity, bucket, name))
        if upload is None:
            raise GcsError(404, "The requested upload was not found.", xml_code="NoSuchUpload")
        return upload

    def in_bucket(self, bucket: str, prefix: str = "") -> list[Multipart]:
        """Return the uploads under way in a bucket, by object name."""
        query = "select * from multiparts where bucket = ? order by name, created, id"
        uploads = self._database.rows(_of_row, query, (bucket,))
        return [upload for upload in uploads if upload.name.startswith(prefix)]

    def parts(self, upload: Multipart) -> list[Part]:
        """Return the parts that have come in, by number."""
        query = "select * from parts where multipart = ? order by number"
        return list(self._database.rows(Part, query, (upload.id,)))

    def put_part(self, upload: Multipart, number: int, content: Content) -> Part:
        """Keep a part, in place of the one of the same number."""
        with self._database.transaction():
            self.get(upload.id, upload.bucket, upload.name)
            part = Part(
                upload.id, number, content.blob, content.size, content.crc32c, content.md5 or "", timestamp()
            )
            for old in self.parts(upload):
                if old.number == number:
                    self._discard(old)
            self._database.execute("insert or replace into parts values (?, ?, ?, ?, ?, ?, ?)", astuple(part))
        return part

    def finish(self, upload: Multipart, content: Content, conditions: Preconditions) -> StoredObject:
        """Make the object and forget the upload, both or neither."""
        with self._database.transaction():
            self.get(upload.id, upload.bucket, upload.name)
            stored = self._objects.create(upload.bucket, upload.name, content, upload.fields, conditions)
            self.drop(upload)
        return stored

    def drop(self, upload: Multipart) -> None:
        """Forget an upload and the bytes of its parts."""
        with self._database.transaction():
            for part in self.parts(upload):
                self._discard(part)
            self._database.execute("delete from parts where multipart = ?", (upload.id,))
            self._database.execute("delete from multiparts where id = ?", (upload.id,))

    def _discard(self, part: Part) -> None:
        self._database.after_commit(lambda: self._blobs.discard(part.blob))


def _of_row(identity: str, bucket: str, name: str, fields: str, created: str) -> Multipart:
    return Multipart(identity, bucket, name, json.loads(fields), created)
