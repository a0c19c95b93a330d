"""Resumable upload sessions: their rows, which outlive the process."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tpuctl.sim.gcs.checksums import Claims
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Content
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.objects import Objects
from tpuctl.sim.gcs.storage.stored_object import StoredObject

LIFETIME = 7 * 86400
"""Seconds a session can be resumed, as in Cloud Storage."""


@dataclass(frozen=True)
class Session:
    """One resumable upload; `result` is the object it has become, once it is complete."""

    id: str
    bucket: str
    name: str
    fields: dict[str, Any]
    claims: Claims
    conditions: Preconditions
    blob: str
    result: StoredObject | None


class Sessions:
    """The table of sessions."""

    def __init__(self, database: Database, objects: Objects, blobs: Blobs) -> None:
        self._database = database
        self._objects = objects
        self._blobs = blobs

    def start(
        self, bucket: str, name: str, fields: Mapping[str, Any], claims: Claims, conditions: Preconditions
    ) -> Session:
        """Open a session; raises 404 without the bucket, 412 when its conditions do not hold even now."""
        self._objects.check(bucket, name, conditions)
        with self._blobs.create() as writer:
            session = Session(
                uuid.uuid4().hex, bucket, name, dict(fields), claims, conditions, writer.blob, None
            )
            self._insert(session)
        return session

    def get(self, identity: str) -> Session:
        """Return a session; raises 404 when it was cancelled, has expired or never was."""
        query = "select id, bucket, name, fields, claims, conditions, blob, result from sessions where id = ?"
        session = self._database.row(_of_row, query, (identity,))
        if session is None:
            raise GcsError(404, "The upload session was not found; start a new one.", xml_code="NoSuchUpload")
        return session

    def finish(self, session: Session, content: Content) -> StoredObject:
        """Make the object and mark the session complete, both or neither."""
        with self._database.transaction():
            stored = self._objects.create(
                session.bucket, session.name, content, session.fields, session.conditions
            )
            self._database.execute(
                "update sessions set result = ?, blob = '' where id = ?",
                (json.dumps(asdict(stored)), session.id),
            )
        return stored

    def drop(self, session: Session) -> None:
        """Forget a session and the bytes it holds."""
        with self._database.transaction():
            self._database.execute("delete from sessions where id = ?", (session.id,))
            if session.blob:
                self._database.after_commit(lambda: self._blobs.discard(session.blob))

    def clear_expired(self) -> None:
        """Forget the sessions that are too old to be resumed, or whose bucket is gone."""
        with self._database.transaction():
            self._database.execute(
                "delete from sessions where created < ? or bucket not in (select name from buckets)",
                (time.time() - LIFETIME,),
            )

    def _insert(self, session: Session) -> None:
        with self._database.transaction():
            self._database.execute(
                "insert into sessions values (?, ?, ?, ?, ?, ?, ?, ?, null)",
                (
                    session.id,
                    session.bucket,
                    session.name,
                    json.dumps(session.fields),
                    json.dumps(asdict(session.claims)),
                    json.dumps(session.conditions.to_json()),
                    session.blob,
                    time.time(),
                ),
            )


def _of_row(
    identity: str,
    bucket: str,
    name: str,
    fields: str,
    claims: str,
    conditions: str,
    blob: str,
    result: str | None,
) -> Session:
    return Session(
        identity,
        bucket,
        name,
        json.loads(fields),
        Claims(**json.loads(claims)),
        Preconditions(**json.loads(conditions)),
        blob,
        StoredObject(**json.loads(result)) if result else None,
    )
