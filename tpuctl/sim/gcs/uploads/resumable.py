"""Handles requests to a resumable upload: a chunk, a status query or a cancellation.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.checksums import Checksums, ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError, method_not_allowed
from tpuctl.sim.gcs.http.request_faults import begin_operation, with_upload_faults
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.storage.upload_sessions import UploadSession
from tpuctl.sim.gcs.uploads.content_range import ContentRange
from tpuctl.sim.gcs.uploads.responses import incomplete_response, object_response
from tpuctl.sim.gcs.uploads.spooling import body_chunks, spool

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
