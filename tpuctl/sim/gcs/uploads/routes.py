"""Uploads through the JSON API: in one piece, with metadata in front, or as a resumable session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.checksums import Claims
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.http.base_url import origin_of
from tpuctl.sim.gcs.http.fault_middleware import received, refuse_if_asked
from tpuctl.sim.gcs.http.multipart_related import RelatedParts, boundary_of
from tpuctl.sim.gcs.http.signed_urls import check_signed_url
from tpuctl.sim.gcs.json_api.routes import match, parse_body
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.acl import predefined
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.uploads.resumable import ResumableUploads, answer_with
from tpuctl.sim.gcs.uploads.spooling import arriving, spool

PATH = "/upload/storage/v1/b/{bucket}/o"


class Uploads:
    """Answers everything under /upload/ (and gcloud's /resumable/upload/)."""

    def __init__(self, store: Store, faults: FaultRegistry, resumable: ResumableUploads) -> None:
        self._store = store
        self._faults = faults
        self._resumable = resumable
        self._kinds: Mapping[str, Callable[[web.Request, str], Awaitable[web.Response]]] = {
            "media": self._media,
            "multipart": self._multipart,
            "resumable": self._start_session,
        }

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request; raises GcsError."""
        check_signed_url(request.query)
        session = request.query.get("upload_id")
        if session is not None:
            return await self._resumable.handle(request, session)
        names = match(PATH, request.rel_url.raw_path.removeprefix("/resumable"))
        if names is None:
            raise GcsError(404, "Not Found")
        if request.method not in ("POST", "PUT"):
            raise GcsError(405, f"Method {request.method} is not allowed here.")
        kind = self._kinds.get(request.query.get("uploadType", "media"))
        if kind is None:
            raise invalid("Invalid value for parameter uploadType.")
        return await kind(request, names["bucket"])

    async def _media(self, request: web.Request, bucket: str) -> web.Response:
        fields = {"contentType": request.headers.get("Content-Type")}
        if "contentEncoding" in request.query:
            fields["contentEncoding"] = request.query["contentEncoding"]
        return await self._receive(request, bucket, fields, arriving(request.content))

    async def _multipart(self, request: web.Request, bucket: str) -> web.Response:
        boundary = boundary_of(request.headers.get("Content-Type", ""))
        parts = RelatedParts(arriving(request.content), boundary)
        fields = parse_body(await parts.metadata())
        headers = await parts.content_headers()
        fields.setdefault("contentType", headers.get("content-type"))
        return await self._receive(request, bucket, fields, parts.content())

    async def _start_session(self, request: web.Request, bucket: str) -> web.Response:
        fields = parse_body(await request.read())
        fields.setdefault("contentType", request.headers.get("X-Upload-Content-Type"))
        name = _name(request, fields)
        if "predefinedAcl" in request.query:
            fields["acl"] = predefined(request.query["predefinedAcl"], self._store.buckets.get(bucket))
        refuse_if_asked(self._faults, "storage.objects.create", f"{bucket}/{name}")
        session = self._store.sessions.start(
            bucket, name, fields, Claims.of(request.headers, fields), Preconditions.of_query(request.query)
        )
        location = (
            f"{origin_of(request)}/upload/storage/v1/b/{bucket}/o"
            f"?uploadType=resumable&name={quote(name, safe='')}&upload_id={session.id}"
        )
        return web.Response(headers={"Location": location, "X-GUploader-UploadID": session.id})

    async def _receive(
        self, request: web.Request, bucket: str, fields: Mapping[str, Any], content: AsyncIterator[bytes]
    ) -> web.Response:
        name = _name(request, fields)
        if "predefinedAcl" in request.query:
            acl = predefined(request.query["predefinedAcl"], self._store.buckets.get(bucket))
            fields = {**fields, "acl": acl}
        stored = await receive(
            self._store,
            self._faults,
            bucket,
            name,
            content,
            fields,
            Claims.of(request.headers, fields),
            Preconditions.of_query(request.query),
        )
        return answer_with(request, stored)


async def receive(
    store: Store,
    faults: FaultRegistry,
    bucket: str,
    name: str,
    content: AsyncIterator[bytes],
    fields: Mapping[str, Any],
    claims: Claims,
    conditions: Preconditions,
) -> StoredObject:
    """Take in the bytes of one object and name them; raises GcsError, and leaves nothing behind then."""
    refuse_if_asked(faults, "storage.objects.create", f"{bucket}/{name}")
    store.objects.check(bucket, name, conditions)
    with store.blobs.create() as writer:
        await spool(received(content), writer)
        whole = writer.finish()
        claims.check(whole.crc32c, whole.md5)
        return store.objects.create(bucket, name, whole, fields, conditions)


def _name(request: web.Request, fields: Mapping[str, Any]) -> str:
    return check_object_name(request.query.get("name") or fields.get("name"))
