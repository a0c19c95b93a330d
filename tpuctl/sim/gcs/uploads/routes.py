"""Uploads through the JSON API by `uploadType`: media, multipart, or the start of a resumable upload."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from urllib.parse import quote

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.errors import invalid, method_not_allowed, no_such_path
from tpuctl.sim.gcs.http.base_url import base_url_of
from tpuctl.sim.gcs.http.multipart_related import MultipartRelated, boundary_of
from tpuctl.sim.gcs.http.request_faults import begin_operation
from tpuctl.sim.gcs.http.signed_urls import KeyOf, check_signed_url
from tpuctl.sim.gcs.json_api.routes import match_path, parse_body
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.acl import predefined_acl
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.uploads.responses import object_response
from tpuctl.sim.gcs.uploads.resumable import ResumableUploads
from tpuctl.sim.gcs.uploads.single_request import store_object
from tpuctl.sim.gcs.uploads.spooling import body_chunks
from tpuctl.sim.json_values import JsonObject, JsonValue

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
