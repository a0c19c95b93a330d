"""Resumable uploads: chunks, cuts, status queries, https://cloud.google.com/storage/docs/performing-resumable-uploads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.checksums import Checksums, Claims
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.http.base_url import origin_of
from tpuctl.sim.gcs.http.fault_middleware import received, refuse_if_asked
from tpuctl.sim.gcs.json_api.fields_mask import select
from tpuctl.sim.gcs.json_api.resources import object_resource
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.storage.upload_sessions import Session
from tpuctl.sim.gcs.uploads.spooling import arriving, spool

QUANTUM = 256 << 10
"""Bytes: a chunk that is not the last is kept up to a multiple of this."""

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True)
class ContentRange:
    """Bytes `first` to `last` (both None: no bytes, a question) of `total` (None: not known yet)."""

    first: int | None
    last: int | None
    total: int | None

    @classmethod
    def parse(cls, header: str) -> ContentRange:
        """Read a Content-Range header; raises 400."""
        found = _CONTENT_RANGE.fullmatch(header.strip())
        if found is None:
            raise invalid(f"Failed to parse Content-Range header: {header}")
        first, last, total = (int(text) if text and text != "*" else None for text in found.groups())
        if first is not None and last is not None and (last < first or (total is not None and last >= total)):
            raise invalid(f"Failed to parse Content-Range header: {header}")
        return cls(first, last, total)


@dataclass
class _Progress:
    """What is known in memory of a session under way; `checksums` is None while the disk must be asked."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    checksums: Checksums | None = None


class ResumableUploads:
    """Answers the requests to session URIs."""

    def __init__(self, store: Store, faults: FaultRegistry) -> None:
        self._store = store
        self._faults = faults
        self._under_way: dict[str, _Progress] = {}

    async def handle(self, request: web.Request, identity: str) -> web.Response:
        """Answer one request of a session, one after the other; raises GcsError."""
        session = self._store.sessions.get(identity)
        refuse_if_asked(self._faults, "storage.objects.create", f"{session.bucket}/{session.name}")
        progress = self._under_way.setdefault(identity, _Progress())
        async with progress.turn:
            session = self._store.sessions.get(identity)
            if request.method == "DELETE":
                return self._cancel(session)
            if request.method not in ("PUT", "POST"):
                raise GcsError(405, f"Method {request.method} is not allowed here.")
            return await self._put(request, session, progress)

    def _cancel(self, session: Session) -> web.Response:
        self._forget(session)
        return web.Response(status=499, reason="Client Closed Request")

    async def _put(self, request: web.Request, session: Session, progress: _Progress) -> web.Response:
        if session.result is not None:
            return answer_with(request, session.result)
        header = request.headers.get("Content-Range")
        span = ContentRange.parse(header) if header is not None else None
        checksums = await self._resume(session, progress)
        if span is None or span.first is not None:
            await self._append(request, session, progress, checksums, span)
        if span is not None and span.total is not None and checksums.size > span.total:
            raise invalid(f"{checksums.size} bytes were received, more than the {span.total} announced.")
        if span is None or checksums.size == span.total:
            return answer_with(request, self._finish(request, session, checksums))
        return await self._incomplete(session, progress)

    async def _resume(self, session: Session, progress: _Progress) -> Checksums:
        """Return the checksums of what is kept, read back from disk after a cut or a restart."""
        if progress.checksums is None:
            size = self._store.blobs.size(session.blob)
            kept = size - size % QUANTUM
            progress.checksums = await asyncio.to_thread(self._store.blobs.summarize, session.blob, kept)
        return progress.checksums

    async def _append(
        self,
        request: web.Request,
        session: Session,
        progress: _Progress,
        checksums: Checksums,
        span: ContentRange | None,
    ) -> None:
        first = span.first if span is not None and span.first is not None else 0
        if first > checksums.size:
            raise GcsError(
                503,
                "Invalid request. According to the Content-Range header, the upload offset is "
                f"{first} byte(s), which exceeds already uploaded size of {checksums.size} byte(s).",
            )
        length = span.last - first + 1 if span is not None and span.last is not None else None
        progress.checksums = None  # if this request is cut, only the disk knows how far it came
        with self._store.blobs.extend(session.blob, checksums) as writer:
            content = received(arriving(request.content))
            await spool(_window(content, checksums.size - first, length), writer)
            self._store.blobs.sync(writer.file)
        progress.checksums = checksums

    async def _incomplete(self, session: Session, progress: _Progress) -> web.Response:
        checksums = await self._resume(session, progress)
        if checksums.size % QUANTUM:
            progress.checksums = None
            checksums = await self._resume(session, progress)
        headers = {"X-GUploader-UploadID": session.id}
        if checksums.size:
            headers["Range"] = f"bytes=0-{checksums.size - 1}"
        return web.Response(status=308, reason="Resume Incomplete", headers=headers)

    def _finish(self, request: web.Request, session: Session, checksums: Checksums) -> StoredObject:
        content = Content(session.blob, checksums.size, checksums.crc32c, checksums.md5)
        try:
            session.claims.check(content.crc32c, content.md5)
            Claims.of(request.headers).check(content.crc32c, content.md5)
            stored = self._store.sessions.finish(session, content)
        except GcsError:
            self._forget(session)
            raise
        self._under_way.pop(session.id, None)
        return stored

    def _forget(self, session: Session) -> None:
        self._under_way.pop(session.id, None)
        self._store.sessions.drop(session)


async def _window(chunks: AsyncIterator[bytes], skip: int, length: int | None) -> AsyncIterator[bytes]:
    """Pass on what lies behind the first `skip` bytes and within the first `length`."""
    at = 0
    async for chunk in chunks:
        start = max(skip - at, 0)
        end = len(chunk) if length is None else min(length - at, len(chunk))
        at += len(chunk)
        if start < end:
            yield chunk[start:end]


def answer_with(request: web.Request, stored: StoredObject) -> web.Response:
    """Answer an upload with the object it made."""
    resource = object_resource(stored, origin_of(request))
    fields = request.query.get("fields")
    return web.json_response(select(resource, fields) if fields is not None else resource)
