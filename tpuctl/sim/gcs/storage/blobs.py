"""The files with objects' bytes: immutable, and named by a uuid, never by the object.

- The tables of the store, in one SQLite file.
"""

from __future__ import annotations

import errno
import io
import os
import re
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tpuctl.sim.gcs.checksums import Checksums
from tpuctl.sim.state import SqliteFile

SCHEMA = """
create table if not exists buckets (
    name text primary key, project text not null, created text not null, updated text not null,
    metageneration integer not null, fields text not null, policy text
) without rowid;
create table if not exists objects (
    bucket text not null, name text not null, generation integer not null, live integer not null,
    metageneration integer not null, blob text not null, size integer not null, crc32c text not null,
    md5 text, components integer, created text not null, updated text not null, deleted text,
    fields text not null,
    primary key (bucket, name, generation)
) without rowid;
create index if not exists objects_by_blob on objects (blob);
create table if not exists sessions (
    id text primary key, bucket text not null, name text not null, fields text not null, claims text not null,
    conditions text not null, blob text not null, created real not null, result text
) without rowid;
create index if not exists sessions_by_blob on sessions (blob);
create table if not exists soft_deleted (
    bucket text not null, name text not null, generation integer not null, live integer not null,
    metageneration integer not null, blob text not null, size integer not null, crc32c text not null,
    md5 text, components integer, created text not null, updated text not null, deleted text,
    fields text not null, expires real not null,
    primary key (bucket, name, generation)
) without rowid;
create index if not exists soft_deleted_by_blob on soft_deleted (blob);
create table if not exists multiparts (
    id text primary key, bucket text not null, name text not null, fields text not null, created text not null
) without rowid;
create table if not exists parts (
    multipart text not null, number integer not null, blob text not null, size integer not null,
    crc32c text not null, md5 text not null, created text not null,
    primary key (multipart, number)
) without rowid;
create index if not exists parts_by_blob on parts (blob);
"""


class Database(SqliteFile):
    """The file of these tables; every change happens inside `transaction`."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        super().__init__(path, SCHEMA, fsync=fsync)


BLOCK = 1 << 20
"""Bytes read or written at a time."""

NAMING_TABLES = ("objects", "sessions", "soft_deleted", "parts")
"""Tables whose rows name blobs."""

_NAMING = " union all ".join(f"select 1 from {table} where blob = ?" for table in NAMING_TABLES) + " limit 1"

_CANNOT_COPY = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP)

_BLOB = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Content:
    """Bytes that are complete on disk, with size and checksums."""

    blob: str
    size: int
    crc32c: str
    md5: str | None
    components: int | None = None


class Blobs:
    """The folder of blobs. A blob is used once a row of the database names it; all others are orphans."""

    def __init__(self, folder: Path, database: Database, *, fsync: bool = False) -> None:
        self._folder = folder
        self._database = database
        self._fsync = fsync
        self._folder.mkdir(parents=True, exist_ok=True)

    def create(self) -> BlobWriter:
        """Start a new blob."""
        blob = uuid.uuid4().hex
        path = self._path(blob)
        path.parent.mkdir(exist_ok=True)
        return BlobWriter(self, blob, path.open("xb", buffering=0), Checksums())

    def extend(self, blob: str, checksums: Checksums) -> BlobWriter:
        """Append to a blob after the bytes that `checksums` covers; bytes behind them are truncated."""
        file = self._path(blob).open("r+b", buffering=0)
        file.truncate(checksums.size)
        file.seek(checksums.size)
        return BlobWriter(self, blob, file, checksums)

    def open(self, blob: str) -> BinaryIO:
        """Open a blob for reading; an open file stays readable after the blob is discarded."""
        return io.FileIO(os.path.join(self._folder, blob[:2], blob))

    def size(self, blob: str) -> int:
        """Return the bytes on disk; 0 for a discarded blob."""
        try:
            return self._path(blob).stat().st_size
        except FileNotFoundError:
            return 0

    def checksums_of(self, blob: str, size: int) -> Checksums:
        """Read the first `size` bytes of a blob and return their checksums."""
        checksums = Checksums()
        with self.open(blob) as file:
            while data := file.read(min(BLOCK, size - checksums.size)):
                checksums.update(data)
        return checksums

    def discard(self, blob: str) -> None:
        """Delete a blob unless an object or an upload names it."""
        if not self._is_named(blob):
            self._path(blob).unlink(missing_ok=True)

    def delete_orphans(self) -> None:
        """Delete the blobs that a killed process never named."""
        for path in self._folder.glob("??/*"):
            if _BLOB.fullmatch(path.name) and not self._is_named(path.name):
                path.unlink()

    def sync(self, file: BinaryIO) -> None:
        """Force a file onto the disk if the store is to survive a power cut."""
        if self._fsync:
            os.fsync(file.fileno())

    def _path(self, blob: str) -> Path:
        return self._folder / blob[:2] / blob

    def _is_named(self, blob: str) -> bool:
        return self._database.row(int, _NAMING, (blob,) * len(NAMING_TABLES)) is not None


class BlobWriter:
    """Writes one blob; the context discards the blob at its end unless a row names it by then."""

    def __init__(self, blobs: Blobs, blob: str, file: BinaryIO, checksums: Checksums) -> None:
        self._blobs = blobs
        self.file = file
        self._lock = threading.Lock()
        self.blob = blob
        self.checksums = checksums

    def write(self, chunks: Sequence[bytes]) -> None:
        """Append; raises OSError when the disk is full."""
        self.store(chunks)
        self.digest(chunks)

    def store(self, chunks: Sequence[bytes]) -> None:
        """Do the first half of `write`: file and CRC32C. The halves may run in two threads."""
        for chunk in chunks:
            with self._lock:  # a cancelled request closes the file while a thread may still write
                view = memoryview(chunk)
                while view:
                    view = view[self.file.write(view) :]
                self.checksums.update_crc32c(chunk)

    def digest(self, chunks: Sequence[bytes]) -> None:
        """Do the second half of `write`: the MD5, which takes longer than the first half."""
        for chunk in chunks:
            self.checksums.update_md5(chunk)

    def append(self, source: BinaryIO, size: int) -> None:
        """Append the first bytes of another file without checksums, in the kernel if possible."""
        offset = 0
        while offset < size:
            with self._lock:
                count = _copy(source, self.file, offset, min(size - offset, 16 * BLOCK))
            if not count:
                raise OSError(errno.EIO, "a blob is shorter than its object")
            offset += count

    def finish(self, components: int | None = None) -> Content:
        """Return the complete content, for an object or a part to name."""
        self._blobs.sync(self.file)
        checksums = self.checksums
        return Content(self.blob, checksums.size, checksums.crc32c, checksums.md5, components)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self.file.close()
        self._blobs.discard(self.blob)


def _copy(source: BinaryIO, target: BinaryIO, offset: int, size: int) -> int:
    """Append bytes from `offset` of a file to another; return how many were copied, 0 at its end."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source.fileno(), target.fileno(), size, offset)
        except OSError as error:
            if error.errno not in _CANNOT_COPY:
                raise
    return target.write(os.pread(source.fileno(), min(size, BLOCK), offset))
