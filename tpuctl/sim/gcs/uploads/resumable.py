"""Handles requests to a resumable upload: a chunk, a status query or a cancellation.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.checksums import Checksums, ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError, invalid, method_not_allowed
from tpuctl.sim.gcs.http.request_faults import begin_operation, with_upload_faults
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.storage.upload_sessions import UploadSession
from tpuctl.sim.gcs.uploads.responses import incomplete_response, object_response
from tpuctl.sim.gcs.uploads.spooling import body_chunks, spool

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
