"""The routes of the XML API that clients use: kind of resource, method, subresource -> operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.errors import GcsError, method_not_allowed
from tpuctl.sim.gcs.http.signed_urls import KeyOf, check_signed_url
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.uploads.resumable import ResumableUploads
from tpuctl.sim.gcs.xml_api import buckets as buckets
from tpuctl.sim.gcs.xml_api import multipart_uploads as multipart_uploads
from tpuctl.sim.gcs.xml_api import objects as objects
from tpuctl.sim.gcs.xml_api.request import XmlRequest

Operation = Callable[[XmlRequest], Awaitable[web.StreamResponse]]

ROUTES: dict[tuple[str, str, str], Operation] = {
    ("service", "GET", ""): buckets.list_buckets,
    ("bucket", "GET", ""): buckets.list_objects,
    ("bucket", "GET", "versions"): buckets.list_objects,
    ("bucket", "GET", "uploads"): multipart_uploads.list_uploads,
    ("bucket", "GET", "location"): buckets.get_location,
    ("bucket", "GET", "versioning"): buckets.get_versioning,
    ("bucket", "HEAD", ""): buckets.head_bucket,
    ("bucket", "PUT", ""): buckets.create_bucket,
    ("bucket", "DELETE", ""): buckets.delete_bucket,
    ("object", "GET", ""): objects.get_object,
    ("object", "HEAD", ""): objects.get_object,
    ("object", "PUT", ""): objects.put_object,
    ("object", "PUT", "compose"): objects.compose_object,
    ("object", "DELETE", ""): objects.delete_object,
    ("object", "POST", "uploads"): multipart_uploads.start,
    ("object", "PUT", "uploadId"): multipart_uploads.put_part,
    ("object", "POST", "uploadId"): multipart_uploads.complete,
    ("object", "DELETE", "uploadId"): multipart_uploads.abort,
    ("object", "GET", "uploadId"): multipart_uploads.list_parts,
}
"""Kind of resource, method, subresource -> operation."""

SUBRESOURCES = (
    "uploads", "uploadId", "versions", "compose", "location", "versioning", "acl", "cors", "lifecycle",
    "logging", "storageClass", "tagging", "website", "billing", "encryption", "retention", "policy",
)  # fmt: skip
"""Query parameters that name a resource of an object or bucket, such as its ACL."""


class XmlApi:
    """Handles every request whose path is none of the JSON API's."""

    def __init__(
        self, store: Store, faults: FaultRegistry, resumable: ResumableUploads, key_of: KeyOf | None
    ) -> None:
        self._store = store
        self._faults = faults
        self._resumable = resumable
        self._key_of = key_of

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Handle one request; raises GcsError."""
        check_signed_url(http, self._key_of)
        request = XmlRequest.of(self._store, self._faults, http)
        session_id = http.query.get("upload_id")
        if session_id is not None and request.name:
            return await self._resume(http, session_id)
        if http.method == "POST" and request.name and "x-goog-resumable" in http.headers:
            return objects.start_session(request)
        return await _operation(request)(request)

    async def _resume(self, http: web.Request, session_id: str) -> web.StreamResponse:
        response = await self._resumable.handle(http, session_id)
        return (
            response if response.status != 200 else web.Response(headers={"X-GUploader-UploadID": session_id})
        )


def _operation(request: XmlRequest) -> Operation:
    kind = "object" if request.name else "bucket" if request.bucket else "service"
    subresource = next((name for name in SUBRESOURCES if name in request.query), "")
    operation = ROUTES.get((kind, request.http.method, subresource))
    if operation is not None:
        return operation
    if any(route[::2] == (kind, subresource) for route in ROUTES):
        raise method_not_allowed(request.http.method)
    raise GcsError(501, "The simulator's XML API does not have this resource; use the JSON API for it.")
