"""The store: a folder with one database and the objects' files, whole again after a kill -9."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Any

from tpuctl.errors import StateError
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs
from tpuctl.sim.gcs.storage.buckets import Bucket, Buckets
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.multipart_uploads import Multiparts
from tpuctl.sim.gcs.storage.objects import Objects
from tpuctl.sim.gcs.storage.upload_sessions import Sessions


class Store:
    """Everything Cloud Storage keeps, under `root`.

    With `fsync` it also survives a power cut; without, a kill of the process at any moment. Raises StateError
    when another process has the folder open.
    """

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._lock = (root / "lock").open("w")
        self._claim(root)
        self.database = Database(root / "metadata.db", fsync=fsync)
        self.blobs = Blobs(root / "blobs", self.database, fsync=fsync)
        self.buckets = Buckets(self.database)
        self.objects = Objects(self.database, self.buckets, self.blobs)
        self.sessions = Sessions(self.database, self.objects, self.blobs)
        self.multiparts = Multiparts(self.database, self.objects, self.blobs)
        self.forget_expired()
        self.blobs.clear_orphans()

    def create_bucket(self, name: str, project: str, **metadata: Any) -> Bucket:
        """Make a bucket; `metadata` are fields of the API's resource. Raises GcsError 409 if it exists."""
        return self.buckets.create(name, project, metadata)

    def ensure_bucket(self, name: str, project: str, **metadata: Any) -> Bucket:
        """Return the bucket of that name, made now if need be."""
        with self.database.transaction():
            return self.buckets.find(name) or self.create_bucket(name, project, **metadata)

    def delete_bucket(self, name: str, conditions: Preconditions) -> None:
        """Remove a bucket without objects, and the uploads into it; raises GcsError 409 while it has some."""
        with self.database.transaction():
            self.buckets.delete(name, conditions)
            self.objects.soft_deletes.forget_bucket(name)
            for upload in self.multiparts.in_bucket(name):
                self.multiparts.drop(upload)

    def forget_expired(self) -> None:
        """Forget sessions and soft-deleted objects whose time is over."""
        self.sessions.clear_expired()
        self.objects.soft_deletes.forget_expired(time.time())

    def close(self) -> None:
        """Close the database and let go of the folder."""
        self.database.close()
        self._lock.close()

    def _claim(self, root: Path) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StateError(
                f"{root} is in use by another simulator.", hint="Stop it first, or use another folder."
            ) from error
