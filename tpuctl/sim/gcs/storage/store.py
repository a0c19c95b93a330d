"""The store: a folder with one database and the files of objects, consistent after a kill -9."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

from tpuctl.errors import StateError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Database
from tpuctl.sim.gcs.storage.buckets import Bucket, Buckets
from tpuctl.sim.gcs.storage.objects import Objects
from tpuctl.sim.gcs.storage.upload_sessions import MultipartUploads, UploadSessions
from tpuctl.sim.json_values import JsonValue


class Store:
    """The state of Cloud Storage in the folder `root`.

    It survives a kill of the process at any moment, with `fsync` also a power cut. Raises StateError if
    another process has the folder open.
    """

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)
        self._lock = (root / "lock").open("w")
        self._lock_folder(root)
        self.database = Database(root / "metadata.db", fsync=fsync)
        self.blobs = Blobs(root / "blobs", self.database, fsync=fsync)
        self.buckets = Buckets(self.database)
        self.objects = Objects(self.database, self.buckets, self.blobs)
        self.upload_sessions = UploadSessions(self.database, self.objects, self.blobs)
        self.multipart_uploads = MultipartUploads(self.database, self.objects, self.blobs)
        self.delete_expired()
        self.blobs.delete_orphans()

    def create_bucket(self, name: str, project: str, **fields: JsonValue) -> Bucket:
        """Create a bucket; `fields` are those of the API's resource. Raises GcsError 409 if it exists."""
        return self.buckets.create(name, project, fields)

    def ensure_bucket(self, name: str, project: str, **fields: JsonValue) -> Bucket:
        """Return the bucket of this name; create it if it does not exist."""
        with self.database.transaction():
            return self.buckets.find(name) or self.create_bucket(name, project, **fields)

    def delete_bucket(self, name: str, conditions: Preconditions) -> None:
        """Delete a bucket and the uploads into it; raises GcsError 409 while it has objects."""
        with self.database.transaction():
            self.buckets.delete(name, conditions)
            self.objects.soft_deletes.delete_bucket(name)
            for upload in self.multipart_uploads.in_bucket(name):
                self.multipart_uploads.delete(upload)

    def delete_expired(self) -> None:
        """Delete the sessions and soft-deleted objects that have expired."""
        self.upload_sessions.delete_expired()
        self.objects.soft_deletes.delete_expired(time.time())

    def close(self) -> None:
        """Close the database and release the folder."""
        self.database.close()
        self._lock.close()

    def _lock_folder(self, root: Path) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StateError(
                f"{root} is in use by another simulator.", hint="Stop it first, or use another folder."
            ) from error
