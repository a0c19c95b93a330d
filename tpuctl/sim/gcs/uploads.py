"""Uploads of objects' bytes: in one request, or resumable in several.

- Reads the body of a multipart/related upload as a stream: first the metadata, then the bytes.
- Writes the body of an upload to a blob: files and hashes in threads, constant memory.
- Builds the responses to uploads: the resource of the new object, or 308 with the bytes stored so far.
- Stores an object from the body of one request, for the JSON API and the XML API.
- Handles requests to a resumable upload: a chunk, a status query or a cancellation.

  https://cloud.google.com/storage/docs/performing-resumable-uploads
- Uploads through the JSON API by `uploadType`: media, multipart, or the start of a resumable upload.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from aiohttp import StreamReader, web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.authorization import KeyOf, base_url_of, check_signed_url
from tpuctl.sim.gcs.checksums import Checksums, ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError, invalid, method_not_allowed, no_such_path
from tpuctl.sim.gcs.json_api.resources import object_resource, select
from tpuctl.sim.gcs.json_api.routes import match_path, parse_body
from tpuctl.sim.gcs.request_faults import begin_operation, with_upload_faults
from tpuctl.sim.gcs.rules import Preconditions, check_object_name
from tpuctl.sim.gcs.storage.blobs import BlobWriter, Content
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject, predefined_acl
from tpuctl.sim.gcs.storage.upload_sessions import UploadSession
from tpuctl.sim.json_values import JsonObject, JsonValue

LARGEST_HEAD = 1 << 20
"""Bytes of preamble, part headers or metadata, each."""

_BOUNDARY = re.compile(r"""boundary=(?:"([^"]+)"|'([^']+)'|([^;\s]+))""", re.IGNORECASE)


def boundary_of(content_type: str) -> bytes:
    """Return the boundary in a Content-Type; raises 400."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise invalid("Multipart content type has no boundary.")
    return next(boundary for boundary in match.groups() if boundary).encode("latin-1", "replace")


class MultipartRelated:
    """The two parts of an upload. Await `metadata()`, then `content_headers()`, then iterate `content()`.

    Lines may end in CRLF or, as gcsfs sends them, in LF; the first boundary line decides.
    """

    def __init__(self, chunks: AsyncIterator[bytes], boundary: bytes) -> None:
        self._chunks = chunks
        self._boundary = b"--" + boundary
        self._newline = b"\r\n"
        self._buffer = b""

    async def metadata(self) -> bytes:
        """Return the first part's body."""
        await self._until(self._boundary)
        self._newline = b"\r\n" if (await self._until(b"\n")).endswith(b"\r") else b"\n"
        await self._headers()
        body = await self._until(self._newline + self._boundary)
        await self._until(b"\n")
        return body

    async def content_headers(self) -> dict[str, str]:
        """Return the second part's headers, names in lower case."""
        return await self._headers()

    async def content(self) -> AsyncIterator[bytes]:
        """Return the second part's body as it arrives; raises 400 when the closing boundary is missing."""
        delimiter = self._newline + self._boundary
        while (end := self._buffer.find(delimiter)) < 0:
            safe = len(self._buffer) - len(delimiter) + 1
            if safe > 0:
                piece, self._buffer = self._buffer[:safe], self._buffer[safe:]
                yield piece
            await self._read()
        if end:
            yield self._buffer[:end]
        async for _ in self._chunks:  # the epilogue has no meaning
            pass

    async def _headers(self) -> dict[str, str]:
        headers = {}
        while line := (await self._until(self._newline)).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return headers

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > LARGEST_HEAD:
                raise GcsError(413, "The metadata of a multipart upload is too large.")
            await self._read()
        before, self._buffer = self._buffer[:end], self._buffer[end + len(mark) :]
        return before

    async def _read(self) -> None:
        try:
            self._buffer += await self._chunks.__anext__()
        except StopAsyncIteration:
            raise invalid("Multipart body ends without its closing boundary.") from None


BLOCK = 2 << 20
"""Bytes that are passed to the threads at a time."""

SMALL = 64 << 10
"""Bytes that are written and hashed faster than a thread starts."""


async def body_chunks(content: StreamReader) -> AsyncIterator[bytes]:
    """Yield a request's body as it arrives, all of it also if the client disconnects after sending it."""
    try:
        while not content.at_eof():
            chunk, _ = await content.readchunk()  # readany() would join the chunks that have arrived
            if chunk:
                yield chunk
    except ConnectionError:
        # aiohttp does not return the bytes that arrived before the connection was lost
        rest, offset = b"".join(content._buffer), content._buffer_offset
        yield rest[offset:]
        if not content.is_eof():
            raise


async def spool(chunks: AsyncIterator[bytes], writer: BlobWriter) -> None:
    """Append all chunks; if the source fails midway, the chunks before are written anyway."""
    spooler = _Spooler(writer)
    try:
        async for chunk in chunks:
            await spooler.add(chunk)
    finally:
        await spooler.flush()


class _Spooler:
    """Collects chunks into blocks; two threads write and hash one block while the next arrives."""

    def __init__(self, writer: BlobWriter) -> None:
        self._writer = writer
        self._chunks: list[bytes] = []
        self._size = 0
        self._writing: asyncio.Future[tuple[None, None]] | None = None

    async def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size >= BLOCK:
            await self._wait()
            block = self._take_block()
            self._writing = asyncio.gather(
                asyncio.to_thread(self._writer.store, block), asyncio.to_thread(self._writer.digest, block)
            )

    async def flush(self) -> None:
        await self._wait()
        if self._size <= SMALL:
            self._writer.write(self._take_block())
        else:
            await asyncio.to_thread(self._writer.write, self._take_block())

    async def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing

    def _take_block(self) -> list[bytes]:
        block, self._chunks, self._size = self._chunks, [], 0
        return block


def object_response(request: web.Request, stored: StoredObject) -> web.Response:
    """Return 200 with the new object, or with the fields that the query selects."""
    resource = object_resource(stored, base_url_of(request))
    fields = request.query.get("fields")
    return web.json_response(select(resource, fields) if fields is not None else resource)


def incomplete_response(request: web.Request, session_id: str, size: int) -> web.Response:
    """Return 308 with the range of bytes that are stored; 200 and 308 in a header to clients in Go.

    https://github.com/googleapis/google-api-go-client/blob/main/internal/gensupport/resumable.go
    """
    headers = {"X-GUploader-UploadID": session_id}
    if size:
        headers["Range"] = f"bytes=0-{size - 1}"
    if request.headers.get("X-GUploader-No-308") == "yes":
        return web.Response(headers={**headers, "X-HTTP-Status-Code-Override": "308"})
    return web.Response(status=308, reason="Resume Incomplete", headers=headers)


async def store_object(
    store: Store,
    faults: FaultRegistry,
    bucket: str,
    name: str,
    content: AsyncIterator[bytes],
    fields: Mapping[str, JsonValue],
    checksums: ExpectedChecksums,
    conditions: Preconditions,
) -> StoredObject:
    """Write the content to a blob and create the object; a GcsError leaves nothing behind."""
    begin_operation(faults, "storage.objects.create", f"{bucket}/{name}", fields)
    store.objects.check(bucket, name, conditions)
    with store.blobs.create() as writer:
        await spool(with_upload_faults(content), writer)
        complete = writer.finish()
        checksums.check(complete.crc32c, complete.md5)
        return store.objects.create(bucket, name, complete, fields, conditions)


_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
QUANTUM = 256 << 10
"""Bytes: of a chunk that is not the last, a multiple of this is stored."""


@dataclass
class _Progress:
    """A session in memory: `checksums` of the stored bytes, None while only the disk has their number."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    checksums: Checksums | None = None


class ResumableUploads:
    """Handles the requests to session URIs."""

    def __init__(self, store: Store, faults: FaultRegistry) -> None:
        self._store = store
        self._faults = faults
        self._progress: dict[str, _Progress] = {}

    async def handle(self, request: web.Request, session_id: str) -> web.Response:
        """Handle one request; those to one session wait for each other. Raises GcsError."""
        session = self._store.upload_sessions.get(session_id)
        begin_operation(self._faults, "storage.objects.create", f"{session.bucket}/{session.name}")
        progress = self._progress.setdefault(session_id, _Progress())
        async with progress.lock:
            session = self._store.upload_sessions.get(session_id)
            if request.method == "DELETE":
                return self._cancel(session)
            if request.method not in ("PUT", "POST"):
                raise method_not_allowed(request.method)
            return await self._put(request, session, progress)

    def _cancel(self, session: UploadSession) -> web.Response:
        self._delete(session)
        return web.Response(status=499, reason="Client Closed Request")

    async def _put(self, request: web.Request, session: UploadSession, progress: _Progress) -> web.Response:
        if session.result is not None:
            return object_response(request, session.result)
        header = request.headers.get("Content-Range")
        content_range = ContentRange.parse(header) if header is not None else ContentRange(first=0)
        checksums = await self._stored(session, progress)
        if not content_range.is_status_query:
            await self._append(request, session, progress, checksums, content_range)
        content_range.check_total(checksums.size)
        if header is None or checksums.size == content_range.total:
            return object_response(request, self._complete(request, session, checksums))
        return await self._incomplete(request, session, progress)

    async def _stored(self, session: UploadSession, progress: _Progress) -> Checksums:
        """Return the checksums of the stored bytes, read from disk after a cut or a restart."""
        if progress.checksums is None:
            size = self._store.blobs.size(session.blob)
            progress.checksums = await asyncio.to_thread(
                self._store.blobs.checksums_of, session.blob, size - size % QUANTUM
            )
        return progress.checksums

    async def _append(
        self,
        request: web.Request,
        session: UploadSession,
        progress: _Progress,
        checksums: Checksums,
        content_range: ContentRange,
    ) -> None:
        content = with_upload_faults(body_chunks(request.content))
        new_bytes = content_range.new_bytes(content, checksums.size)
        progress.checksums = None  # if this request is cut, only the disk has the number of stored bytes
        with self._store.blobs.extend(session.blob, checksums) as writer:
            await spool(new_bytes, writer)
            self._store.blobs.sync(writer.file)
        progress.checksums = checksums

    async def _incomplete(
        self, request: web.Request, session: UploadSession, progress: _Progress
    ) -> web.Response:
        checksums = await self._stored(session, progress)
        if checksums.size % QUANTUM:
            progress.checksums = None
            checksums = await self._stored(session, progress)
        return incomplete_response(request, session.id, checksums.size)

    def _complete(self, request: web.Request, session: UploadSession, checksums: Checksums) -> StoredObject:
        content = Content(session.blob, checksums.size, checksums.crc32c, checksums.md5)
        try:
            session.checksums.check(content.crc32c, content.md5)
            ExpectedChecksums.of(request.headers).check(content.crc32c, content.md5)
            stored = self._store.upload_sessions.complete(session, content)
        except GcsError:
            self._delete(session)
            raise
        self._progress.pop(session.id, None)
        return stored

    def _delete(self, session: UploadSession) -> None:
        self._progress.pop(session.id, None)
        self._store.upload_sessions.delete(session)


# Parses the Content-Range of a request to a resumable upload, and checks it against the upload.


@dataclass(frozen=True)
class ContentRange:
    """Bytes `first` to `last` of `total`; None for both is a status query, None for `total` is unknown."""

    first: int | None = None
    last: int | None = None
    total: int | None = None

    @classmethod
    def parse(cls, header: str) -> ContentRange:
        """Parse a Content-Range header; raises 400."""
        match = _CONTENT_RANGE.fullmatch(header.strip())
        if match is None:
            raise invalid(f"Failed to parse Content-Range header: {header}")
        first, last, total = (int(text) if text and text != "*" else None for text in match.groups())
        if first is not None and last is not None and (last < first or (total is not None and last >= total)):
            raise invalid(f"Failed to parse Content-Range header: {header}")
        return cls(first, last, total)

    @property
    def is_status_query(self) -> bool:
        return self.first is None

    def new_bytes(self, chunks: AsyncIterator[bytes], stored: int) -> AsyncIterator[bytes]:
        """Return the bytes of a body behind the stored ones; raises 503 if bytes between are missing."""
        first = self.first or 0
        if first > stored:
            raise GcsError(
                503,
                "Invalid request. According to the Content-Range header, the upload offset is "
                f"{first} byte(s), which exceeds already uploaded size of {stored} byte(s).",
            )
        length = self.last - first + 1 if self.last is not None else None
        return _window(chunks, stored - first, length)

    def check_total(self, stored: int) -> None:
        """Raise 400 if more bytes are stored than the total."""
        if self.total is not None and stored > self.total:
            raise invalid(f"{stored} bytes were received, more than the {self.total} announced.")


async def _window(chunks: AsyncIterator[bytes], skip: int, length: int | None) -> AsyncIterator[bytes]:
    """Yield the bytes behind the first `skip` and within the first `length`."""
    offset = 0
    async for chunk in chunks:
        start = max(skip - offset, 0)
        end = len(chunk) if length is None else min(length - offset, len(chunk))
        offset += len(chunk)
        if start < end:
            yield chunk[start:end]


PATH = "/upload/storage/v1/b/{bucket}/o"


class Uploads:
    """Handles every request under /upload/ (and gcloud's /resumable/upload/)."""

    def __init__(
        self, store: Store, faults: FaultRegistry, resumable: ResumableUploads, key_of: KeyOf | None
    ) -> None:
        self._store = store
        self._faults = faults
        self._resumable = resumable
        self._key_of = key_of
        self._handlers: Mapping[str, Callable[[web.Request, str], Awaitable[web.Response]]] = {
            "media": self._media,
            "multipart": self._multipart,
            "resumable": self._start_session,
        }

    async def handle(self, request: web.Request) -> web.Response:
        """Handle one request; raises GcsError."""
        check_signed_url(request, self._key_of)
        session_id = request.query.get("upload_id")
        if session_id is not None:
            return await self._resumable.handle(request, session_id)
        names = match_path(PATH, request.rel_url.raw_path.removeprefix("/resumable"))
        if names is None:
            raise no_such_path()
        if request.method not in ("POST", "PUT"):
            raise method_not_allowed(request.method)
        handler = self._handlers.get(request.query.get("uploadType", "media"))
        if handler is None:
            raise invalid("Invalid value for parameter uploadType.")
        return await handler(request, names["bucket"])

    async def _media(self, request: web.Request, bucket: str) -> web.Response:
        fields: JsonObject = {"contentType": request.headers.get("Content-Type")}
        if "contentEncoding" in request.query:
            fields["contentEncoding"] = request.query["contentEncoding"]
        return await self._store_object(request, bucket, fields, body_chunks(request.content))

    async def _multipart(self, request: web.Request, bucket: str) -> web.Response:
        boundary = boundary_of(request.headers.get("Content-Type", ""))
        body = MultipartRelated(body_chunks(request.content), boundary)
        fields = parse_body(await body.metadata())
        headers = await body.content_headers()
        fields.setdefault("contentType", headers.get("content-type"))
        return await self._store_object(request, bucket, fields, body.content())

    async def _start_session(self, request: web.Request, bucket: str) -> web.Response:
        fields = parse_body(await request.read())
        fields.setdefault("contentType", request.headers.get("X-Upload-Content-Type"))
        name = _name(request, fields)
        fields |= self._predefined_acl(request, bucket)
        begin_operation(self._faults, "storage.objects.create", f"{bucket}/{name}", fields)
        checksums = ExpectedChecksums.of(request.headers, fields)
        conditions = Preconditions.of_query(request.query)
        session = self._store.upload_sessions.start(bucket, name, fields, checksums, conditions)
        location = (
            f"{base_url_of(request)}/upload/storage/v1/b/{bucket}/o"
            f"?uploadType=resumable&name={quote(name, safe='')}&upload_id={session.id}"
        )
        return web.Response(headers={"Location": location, "X-GUploader-UploadID": session.id})

    async def _store_object(
        self, request: web.Request, bucket: str, fields: JsonObject, content: AsyncIterator[bytes]
    ) -> web.Response:
        name = _name(request, fields)
        fields |= self._predefined_acl(request, bucket)
        stored = await store_object(
            self._store,
            self._faults,
            bucket,
            name,
            content,
            fields,
            ExpectedChecksums.of(request.headers, fields),
            Preconditions.of_query(request.query),
        )
        return object_response(request, stored)

    def _predefined_acl(self, request: web.Request, bucket: str) -> JsonObject:
        if "predefinedAcl" not in request.query:
            return {}
        return {"acl": predefined_acl(request.query["predefinedAcl"], self._store.buckets.get(bucket))}


def _name(request: web.Request, fields: Mapping[str, JsonValue]) -> str:
    return check_object_name(request.query.get("name") or fields.get("name"))
