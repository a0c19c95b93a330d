"""The XML API, as far as clients use it: the table of its operations, and the way to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.signed_urls import check_signed_url
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
"""What the path names, method, subresource -> operation."""

SUBRESOURCES = (
    "uploads", "uploadId", "versions", "compose", "location", "versioning", "acl", "cors", "lifecycle",
    "logging", "storageClass", "tagging", "website", "billing", "encryption", "retention", "policy",
)  # fmt: skip
"""Query parameters that mean another resource than the object or the listing itself."""


class XmlApi:
    """Answers requests to the service, to buckets and to objects by their path."""

    def __init__(self, store: Store, faults: FaultRegistry, resumable: ResumableUploads) -> None:
        self._store = store
        self._faults = faults
        self._resumable = resumable

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; raises GcsError."""
        check_signed_url(request.query)
        call = XmlRequest.of(self._store, self._faults, request)
        session = request.query.get("upload_id")
        if session is not None and call.name:
            return await self._resume(request, session)
        if request.method == "POST" and call.name and "x-goog-resumable" in request.headers:
            return objects.start_session(call)
        return await _operation(call)(call)

    async def _resume(self, request: web.Request, session: str) -> web.StreamResponse:
        answer = await self._resumable.handle(request, session)
        return answer if answer.status != 200 else web.Response(headers={"X-GUploader-UploadID": session})


def _operation(call: XmlRequest) -> Operation:
    kind = "object" if call.name else "bucket" if call.bucket else "service"
    subresource = next((name for name in SUBRESOURCES if name in call.query), "")
    operation = ROUTES.get((kind, call.request.method, subresource))
    if operation is not None:
        return operation
    if any(known[::2] == (kind, subresource) for known in ROUTES):
        raise GcsError(405, f"Method {call.request.method} is not allowed here.")
    raise GcsError(501, "The simulator's XML API does not have this resource; use the JSON API for it.")
