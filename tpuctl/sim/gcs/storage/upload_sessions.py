"""Sessions of resumable uploads: their rows, which survive a restart.

- Multipart uploads of the XML API: the rows of uploads and their parts, which survive a restart.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass

from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError, timestamp
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Content, Database
from tpuctl.sim.gcs.storage.objects import Objects
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.json_values import JsonObject, JsonValue

LIFETIME = 7 * 86400
"""Seconds that a session can be resumed, as in Cloud Storage."""


@dataclass(frozen=True)
class UploadSession:
    """One resumable upload; `result` is its object once the upload is complete."""

    id: str
    bucket: str
    name: str
    fields: JsonObject
    checksums: ExpectedChecksums
    conditions: Preconditions
    blob: str
    result: StoredObject | None


class UploadSessions:
    """The table of sessions."""

    def __init__(self, database: Database, objects: Objects, blobs: Blobs) -> None:
        self._database = database
        self._objects = objects
        self._blobs = blobs

    def start(
        self,
        bucket: str,
        name: str,
        fields: Mapping[str, JsonValue],
        checksums: ExpectedChecksums,
        conditions: Preconditions,
    ) -> UploadSession:
        """Start a session; raises 404 without the bucket, 412 unless its conditions hold now."""
        self._objects.check(bucket, name, conditions)
        with self._blobs.create() as writer:
            session = UploadSession(
                uuid.uuid4().hex, bucket, name, dict(fields), checksums, conditions, writer.blob, None
            )
            self._insert(session)
        return session

    def get(self, session_id: str) -> UploadSession:
        """Return a session; raises 404 when it is cancelled, expired or unknown."""
        query = "select id, bucket, name, fields, claims, conditions, blob, result from sessions where id = ?"
        session = self._database.row(_of_row, query, (session_id,))
        if session is None:
            raise GcsError(404, "The upload session was not found; start a new one.", xml_code="NoSuchUpload")
        return session

    def complete(self, session: UploadSession, content: Content) -> StoredObject:
        """Create the object and mark the session complete, both or neither."""
        with self._database.transaction():
            stored = self._objects.create(
                session.bucket, session.name, content, session.fields, session.conditions
            )
            self._database.execute(
                "update sessions set result = ?, blob = '' where id = ?",
                (json.dumps(asdict(stored)), session.id),
            )
        return stored

    def delete(self, session: UploadSession) -> None:
        """Delete a session and its bytes."""
        with self._database.transaction():
            self._database.execute("delete from sessions where id = ?", (session.id,))
            if session.blob:
                self._database.after_commit(lambda: self._blobs.discard(session.blob))

    def delete_expired(self) -> None:
        """Delete the sessions that are too old to be resumed, or whose bucket is deleted."""
        with self._database.transaction():
            self._database.execute(
                "delete from sessions where created < ? or bucket not in (select name from buckets)",
                (time.time() - LIFETIME,),
            )

    def _insert(self, session: UploadSession) -> None:
        with self._database.transaction():
            self._database.execute(
                "insert into sessions values (?, ?, ?, ?, ?, ?, ?, ?, null)",
                (
                    session.id,
                    session.bucket,
                    session.name,
                    json.dumps(session.fields),
                    json.dumps(asdict(session.checksums)),
                    json.dumps(session.conditions.to_json()),
                    session.blob,
                    time.time(),
                ),
            )


def _of_row(
    session_id: str,
    bucket: str,
    name: str,
    fields: str,
    claims: str,
    conditions: str,
    blob: str,
    result: str | None,
) -> UploadSession:
    return UploadSession(
        session_id,
        bucket,
        name,
        json.loads(fields),
        ExpectedChecksums(**json.loads(claims)),
        Preconditions(**json.loads(conditions)),
        blob,
        StoredObject(**json.loads(result)) if result else None,
    )


@dataclass(frozen=True)
class MultipartUpload:
    """One multipart upload that is neither complete nor aborted."""

    id: str
    bucket: str
    name: str
    fields: JsonObject
    created: str


@dataclass(frozen=True)
class Part:
    """One part of a multipart upload, complete on disk."""

    multipart: str
    number: int
    blob: str
    size: int
    crc32c: str
    md5: str
    created: str

    @property
    def content(self) -> Content:
        """The bytes, to be concatenated with those of other parts."""
        return Content(self.blob, self.size, self.crc32c, self.md5)


class MultipartUploads:
    """The tables of multipart uploads and their parts."""

    def __init__(self, database: Database, objects: Objects, blobs: Blobs) -> None:
        self._database = database
        self._objects = objects
        self._blobs = blobs

    def start(self, bucket: str, name: str, fields: Mapping[str, JsonValue]) -> MultipartUpload:
        """Start an upload; raises 404 without the bucket."""
        self._objects.check(bucket, name, Preconditions())
        upload = MultipartUpload(uuid.uuid4().hex, bucket, name, dict(fields), timestamp())
        with self._database.transaction():
            self._database.execute(
                "insert into multiparts values (?, ?, ?, ?, ?)",
                (upload.id, bucket, name, json.dumps(upload.fields), upload.created),
            )
        return upload

    def get(self, upload_id: str, bucket: str, name: str) -> MultipartUpload:
        """Return an upload; raises 404 when it is complete, aborted or unknown."""
        query = "select * from multiparts where id = ? and bucket = ? and name = ?"
        upload = self._database.row(_upload_of_row, query, (upload_id, bucket, name))
        if upload is None:
            raise GcsError(404, "The requested upload was not found.", xml_code="NoSuchUpload")
        return upload

    def in_bucket(self, bucket: str, prefix: str = "") -> list[MultipartUpload]:
        """Return the uploads into a bucket, by object name."""
        query = "select * from multiparts where bucket = ? order by name, created, id"
        uploads = self._database.rows(_upload_of_row, query, (bucket,))
        return [upload for upload in uploads if upload.name.startswith(prefix)]

    def parts(self, upload: MultipartUpload) -> list[Part]:
        """Return the parts uploaded so far, by number."""
        query = "select * from parts where multipart = ? order by number"
        return list(self._database.rows(Part, query, (upload.id,)))

    def put_part(self, upload: MultipartUpload, number: int, content: Content) -> Part:
        """Store a part, in place of the part of the same number."""
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

    def complete(self, upload: MultipartUpload, content: Content, conditions: Preconditions) -> StoredObject:
        """Create the object and delete the upload, both or neither."""
        with self._database.transaction():
            self.get(upload.id, upload.bucket, upload.name)
            stored = self._objects.create(upload.bucket, upload.name, content, upload.fields, conditions)
            self.delete(upload)
        return stored

    def delete(self, upload: MultipartUpload) -> None:
        """Delete an upload and the bytes of its parts."""
        with self._database.transaction():
            for part in self.parts(upload):
                self._discard(part)
            self._database.execute("delete from parts where multipart = ?", (upload.id,))
            self._database.execute("delete from multiparts where id = ?", (upload.id,))

    def _discard(self, part: Part) -> None:
        self._database.after_commit(lambda: self._blobs.discard(part.blob))


def _upload_of_row(upload_id: str, bucket: str, name: str, fields: str, created: str) -> MultipartUpload:
    return MultipartUpload(upload_id, bucket, name, json.loads(fields), created)
