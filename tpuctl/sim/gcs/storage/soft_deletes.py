"""Deleted objects that can still be restored, https://cloud.google.com/storage/docs/soft-delete."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tpuctl.sim.gcs.errors import no_such_object
from tpuctl.sim.gcs.storage.blobs import Blobs
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.stored_object import COLUMNS, StoredObject
from tpuctl.sim.gcs.timestamps import timestamp

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
