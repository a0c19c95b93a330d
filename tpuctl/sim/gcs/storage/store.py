"""The store: one database and the files of objects, consistent after a kill -9; listing and composing."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from tpuctl.errors import StateError
from tpuctl.sim.gcs.errors import GcsError, invalid, invalid_field
from tpuctl.sim.gcs.rules import ListQuery, Position, Preconditions, check_object_name, parse_number
from tpuctl.sim.gcs.storage.blobs import Blobs, BlobWriter, Content, Database
from tpuctl.sim.gcs.storage.buckets import Bucket, Buckets
from tpuctl.sim.gcs.storage.objects import TABLE, Objects
from tpuctl.sim.gcs.storage.stored_object import COLUMNS, StoredObject
from tpuctl.sim.gcs.storage.upload_sessions import MultipartUploads, UploadSessions
from tpuctl.sim.json_values import JsonObject, JsonValue, objects_at


@dataclass
class Page:
    """One page of a listing, and where the next page begins."""

    items: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    next: Position | None = None

    def __len__(self) -> int:
        return len(self.items) + len(self.prefixes)


def list_page(database: Database, bucket: str, query: ListQuery) -> Page:
    """Return the page of a listing that begins at the query's position, by the names' UTF-8."""
    page = Page()
    last_prefix = query.position.prefix
    for stored in _Walk(database, bucket, query):
        prefix = query.common_prefix(stored.name)
        if prefix and prefix != last_prefix:
            if len(page) == query.limit:
                page.next = Position(stored.name, stored.generation, last_prefix)
                return page
            page.prefixes.append(prefix)
            last_prefix = prefix
        if not prefix or (query.trailing_delimiter and stored.name == prefix):
            if len(page) == query.limit:
                page.next = Position(stored.name, stored.generation, last_prefix)
                return page
            page.items.append(stored)
    return page


class _Walk:
    """The objects that a listing must read: one seek skips all objects below a common prefix."""

    def __init__(self, database: Database, bucket: str, query: ListQuery) -> None:
        self._database = database
        self._bucket = bucket
        self._query = query

    def __iter__(self) -> Iterator[StoredObject]:
        query = self._query
        seek: Position | None = max(
            Position(max(query.prefix, query.start_offset)),
            query.position,
            key=lambda position: (position.name, position.generation),
        )
        while seek is not None:
            start, seek = seek, None
            for stored in self._rows(start):
                if not stored.name.startswith(query.prefix):
                    return
                if query.end_offset and stored.name >= query.end_offset:
                    return
                if query.glob is not None and not query.glob.fullmatch(stored.name):
                    continue
                yield stored
                prefix = query.common_prefix(stored.name)
                if prefix and stored.name != prefix:
                    following = _after(prefix)
                    seek = Position(following) if following is not None else None
                    break

    def _rows(self, start: Position) -> Iterator[StoredObject]:
        table = TABLE if self._query.soft_deleted else "objects"
        live = "" if self._query.versions or self._query.soft_deleted else " and live = 1"
        return self._database.rows(
            StoredObject.of_row,
            f"select {COLUMNS} from {table} where bucket = ? and (name, generation) >= (?, ?){live} "
            "order by name, generation",
            (self._bucket, start.name, start.generation),
        )


def _after(prefix: str) -> str | None:
    """Return the least string above all that begin with `prefix`."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following == 0xD800:  # surrogates are no characters, so no query may contain them
            following = 0xE000
        if following <= 0x10FFFF:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None


POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with its bits reversed."""
Matrix = tuple[int, ...]
"""32 columns over GF(2): the next CRC register as a linear function of the last."""
MOST_SOURCES = 32


async def compose(
    store: Store, bucket: str, name: str, request: Mapping[str, JsonValue], conditions: Preconditions
) -> StoredObject:
    """Create an object from the `sourceObjects` of a request, in a thread; raises GcsError.

    The generations are those at the time of the call: later changes of the sources have no effect.
    """
    check_object_name(name)
    store.objects.check(bucket, name, conditions)
    sources = [_find(store, bucket, source) for source in _source_objects(request)]
    fields = request.get("destination") or {}
    if not isinstance(fields, dict):
        raise invalid_field("destination")
    components = sum(source.components or 1 for source in sources)
    async with concatenated(store, [source.content for source in sources], components) as content:
        return store.objects.create(bucket, name, content, fields, conditions, content_type=None)


@asynccontextmanager
async def concatenated(
    store: Store, contents: Sequence[Content], components: int | None = None
) -> AsyncIterator[Content]:
    """Concatenate contents in a thread; the bytes are discarded unless an object names them at the end."""
    with ExitStack() as stack, store.blobs.create() as writer:
        files = [stack.enter_context(store.blobs.open(content.blob)) for content in contents]
        sizes = [content.size for content in contents]
        await asyncio.to_thread(_append_all, writer, list(zip(files, sizes, strict=True)))
        store.blobs.sync(writer.file)
        yield Content(writer.blob, sum(sizes), _crc32c(contents), None, components)


def _crc32c(contents: Sequence[Content]) -> str:
    crc32c = 0
    for content in contents:
        following = int.from_bytes(base64.b64decode(content.crc32c), "big")
        crc32c = combine_crc32c(crc32c, following, content.size)
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def _source_objects(request: Mapping[str, JsonValue]) -> Sequence[JsonObject]:
    sources = request.get("sourceObjects")
    if not isinstance(sources, list) or not sources:
        raise GcsError(400, "You must provide at least one source component.", reason="required")
    if len(sources) > MOST_SOURCES:
        raise invalid(
            f"The number of source components provided ({len(sources)}) exceeds the maximum ({MOST_SOURCES})"
        )
    objects = objects_at(request, "sourceObjects")
    if len(objects) < len(sources):
        raise invalid_field("sourceObjects")
    return objects


def _find(store: Store, bucket: str, source: JsonObject) -> StoredObject:
    name = check_object_name(source.get("name"))
    number = source.get("generation")
    generation = parse_number("generation", number) if number is not None else None
    stored = store.objects.get(bucket, name, generation)
    conditions = source.get("objectPreconditions") or {}
    if not isinstance(conditions, dict):
        raise invalid_field("objectPreconditions")
    Preconditions.of_query(conditions).check(stored.generation, stored.metageneration)
    return stored


def _append_all(writer: BlobWriter, files: Sequence[tuple[BinaryIO, int]]) -> None:
    for file, size in files:
        writer.append(file, size)


# Computes the CRC-32C of concatenated data from those of the pieces, as zlib's crc32_combine does.


def combine_crc32c(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32C of data whose first and second part have these CRC-32Cs."""
    power = 0
    while second_size:
        if second_size & 1:
            first = _times(_zero_bytes(power), first)
        second_size >>= 1
        power += 1
    return first ^ second


@lru_cache(maxsize=64)
def _zero_bytes(power: int) -> Matrix:
    """The effect of 2**power zero bytes on a CRC register."""
    if power == 0:
        one_bit: Matrix = (POLYNOMIAL, *(1 << bit for bit in range(31)))
        two_bits = _squared(one_bit)
        return _squared(_squared(two_bits))
    return _squared(_zero_bytes(power - 1))


def _squared(matrix: Matrix) -> Matrix:
    return tuple(_times(matrix, column) for column in matrix)


def _times(matrix: Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
    return total


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
