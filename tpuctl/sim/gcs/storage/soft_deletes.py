"""Objects that were deleted but can be restored for a while, https://cloud.google.com/storage/docs/soft-delete."""

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

    def bury(self, old: StoredObject, seconds: int) -> None:
        """Keep a removed object for so long."""
        now = datetime.now(UTC)
        end = now + timedelta(seconds=seconds)
        times = {"softDeleteTime": timestamp(now), "hardDeleteTime": timestamp(end)}
        buried = replace(old, live=False, fields={**old.fields, **times})
        buried.insert(self._database, TABLE, expires=end.timestamp())

    def get(self, bucket: str, name: str, generation: int) -> StoredObject:
        """Return a soft-deleted object; raises 404."""
        query = f"select {COLUMNS} from {TABLE} where bucket = ? and name = ? and generation = ?"
        stored = self._database.row(StoredObject.of_row, query, (bucket, name, generation))
        if stored is None:
            raise no_such_object(bucket, name)
        return stored

    def forget(self, buried: StoredObject) -> None:
        """Remove a soft-deleted object for good."""
        with self._database.transaction():
            buried.remove(self._database, TABLE)
            self._database.after_commit(lambda: self._blobs.discard(buried.blob))

    def forget_bucket(self, bucket: str) -> None:
        """Remove what was soft-deleted in a bucket that goes itself."""
        self._forget("bucket = ?", bucket)

    def forget_expired(self, now: float) -> None:
        """Remove what was kept long enough; `now` is in seconds since 1970."""
        self._forget("expires <= ?", now)

    def _forget(self, which: str, value: str | float) -> None:
        with self._database.transaction():
            query = f"select {COLUMNS} from {TABLE} where {which}"
            for stored in list(self._database.rows(StoredObject.of_row, query, (value,))):
                self.forget(stored)
