"""The routes of the XML API that clients use: kind of resource, method, subresource -> operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from urllib.parse import quote, unquote

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.authorization import KeyOf, authorize_in_project, base_url_of, check_signed_url, require
from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.downloads import object_headers, send_object
from tpuctl.sim.gcs.errors import GcsError, invalid, method_not_allowed, required
from tpuctl.sim.gcs.rules import (
    LARGEST_PAGE,
    ListQuery,
    Position,
    Preconditions,
    check_etags,
    check_object_name,
    parse_number,
)
from tpuctl.sim.gcs.storage.store import Page, Store, compose, list_page
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.uploads import ResumableUploads, body_chunks, store_object
from tpuctl.sim.gcs.xml_api import multipart_uploads as multipart_uploads
from tpuctl.sim.gcs.xml_api.documents import (
    Content,
    Elements,
    XmlRequest,
    read_xml,
    text_of,
    xml_etag,
    xml_response,
)
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.token_server import project_number

# The XML API's operations on the service and on buckets, which include the listing of objects.
Encoder = Callable[[str], str]
"""Encodes the names in a listing, by the `encoding-type` of the request."""
FIELD_ELEMENTS = {"location": "LocationConstraint", "storageClass": "StorageClass"}
"""Field of a bucket -> its element in the document that creates it."""


async def list_buckets(request: XmlRequest) -> web.StreamResponse:
    """GET Service"""
    project = request.headers.get("x-goog-project-id") or request.query.get("project")
    if not project:
        raise required("x-goog-project-id")
    request.begin("storage.buckets.list", project)
    authorize_in_project("storage.buckets.list", project)
    buckets: Elements = [
        ("Bucket", [("Name", bucket.name), ("CreationDate", bucket.created)])
        for bucket in request.store.buckets.of_project(project)
    ]
    owner = [("ID", str(project_number(project)))]
    return xml_response("ListAllMyBucketsResult", [("Owner", owner), ("Buckets", buckets)])


async def list_objects(request: XmlRequest) -> web.StreamResponse:
    """GET Bucket (List Objects), version 1 or with `list-type=2` version 2"""
    request.begin("storage.objects.list", request.bucket)
    request.store.buckets.get(request.bucket)
    query = _list_query(request.query)
    page = list_page(request.store.database, request.bucket, query) if query.limit else Page()
    is_version_2 = request.query.get("list-type") == "2"
    encode: Encoder = quote if request.query.get("encoding-type") == "url" else str
    head: list[tuple[str, Content]] = [
        ("Name", request.bucket),
        ("Prefix", encode(query.prefix)),
        *([] if is_version_2 else [("Marker", encode(request.query.get("marker", "")))]),
        *([("Delimiter", encode(query.delimiter))] if query.delimiter else []),
        *([("KeyCount", len(page))] if is_version_2 else []),
        ("MaxKeys", query.limit),
        ("IsTruncated", "true" if page.next else "false"),
        *_next(page, encode, is_version_2=is_version_2),
    ]
    kind = "Version" if query.versions else "Contents"
    contents = [(kind, _entry(stored, encode)) for stored in page.items]
    prefixes: Elements = [("CommonPrefixes", [("Prefix", encode(prefix))]) for prefix in page.prefixes]
    name = "ListVersionsResult" if query.versions else "ListBucketResult"
    return xml_response(name, [*head, *contents, *prefixes])


async def get_location(request: XmlRequest) -> web.StreamResponse:
    """GET Bucket location"""
    require("storage.buckets.get", request.bucket)
    bucket = request.store.buckets.get(request.bucket)
    return xml_response("LocationConstraint", bucket.location)


async def get_versioning(request: XmlRequest) -> web.StreamResponse:
    """GET Bucket versioning"""
    require("storage.buckets.get", request.bucket)
    versioned = request.store.buckets.get(request.bucket).versioned
    return xml_response("VersioningConfiguration", [("Status", "Enabled")] if versioned else [])


async def head_bucket(request: XmlRequest) -> web.StreamResponse:
    """HEAD Bucket"""
    request.begin("storage.buckets.get", request.bucket)
    bucket = request.store.buckets.get(request.bucket)
    return web.Response(headers={"X-Goog-Metageneration": str(bucket.metageneration)})


async def create_bucket(request: XmlRequest) -> web.StreamResponse:
    """PUT Bucket"""
    project = request.headers.get("x-goog-project-id")
    if not project:
        raise required("x-goog-project-id")
    request.begin("storage.buckets.create", request.bucket)
    authorize_in_project("storage.buckets.create", project)
    fields = {}
    if request.http.body_exists:
        document = await read_xml(request.http, "CreateBucketConfiguration")
        texts = {field: document.findtext(element) for field, element in FIELD_ELEMENTS.items()}
        fields = {field: text.strip() for field, text in texts.items() if text}
    request.store.create_bucket(request.bucket, project, **fields)
    return web.Response()


async def delete_bucket(request: XmlRequest) -> web.StreamResponse:
    """DELETE Bucket"""
    request.begin("storage.buckets.delete", request.bucket)
    request.store.delete_bucket(request.bucket, Preconditions.of_headers(request.headers))
    return web.Response(status=204)


def _list_query(query: Mapping[str, str]) -> ListQuery:
    limit = min(parse_number("max-keys", query.get("max-keys", LARGEST_PAGE)), LARGEST_PAGE)
    list_query = ListQuery(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        versions="versions" in query,
        limit=limit,
    )
    token = query.get("continuation-token")
    if token:
        return replace(list_query, position=Position.of_token(token))
    marker = query.get("start-after" if query.get("list-type") == "2" else "marker", "")
    return replace(list_query, position=_after(marker, list_query)) if marker else list_query


def _after(marker: str, query: ListQuery) -> Position:
    """Return where a listing continues after the name or common prefix that was listed last."""
    if marker.startswith(query.prefix) and query.common_prefix(marker) == marker:
        return Position(marker, prefix=marker)
    return Position(marker + "\0")


def _next(page: Page, encode: Encoder, *, is_version_2: bool) -> Elements:
    if page.next is None:
        return []
    if is_version_2:
        return [("NextContinuationToken", page.next.to_token())]
    last = max([stored.name for stored in page.items] + page.prefixes)
    return [("NextMarker", encode(last))]


def _entry(stored: StoredObject, encode: Encoder) -> Elements:
    return [
        ("Key", encode(stored.name)),
        ("Generation", stored.generation),
        ("MetaGeneration", stored.metageneration),
        ("LastModified", stored.updated),
        ("ETag", f'"{xml_etag(stored)}"'),
        ("Size", stored.size),
        ("StorageClass", stored.storage_class),
    ]


# The XML API's operations on objects, with their bytes; resumable uploads only start here.
COPY_SOURCE = "x-goog-copy-source"
COMPONENT_CONDITIONS = {
    "IfGenerationMatch": "ifGenerationMatch",
    "IfMetagenerationMatch": "ifMetagenerationMatch",
}
"""Element of a compose request -> precondition of the JSON API."""


async def get_object(request: XmlRequest) -> web.StreamResponse:
    """GET and HEAD Object"""
    request.begin("storage.objects.get", request.bucket, request.name)
    stored = request.store.objects.get(request.bucket, request.name, request.generation())
    conditions = Preconditions.of_headers(request.headers)
    conditions.check(stored.generation, stored.metageneration, reading=True)
    check_etags(request.headers, xml_etag(stored))
    return await send_object(request.store, request.http, stored, f'"{xml_etag(stored)}"')


async def put_object(request: XmlRequest) -> web.StreamResponse:
    """PUT Object, or with a source in the headers, PUT Object - Copy"""
    if COPY_SOURCE in request.headers:
        return _copy(request)
    stored = await store_object(
        request.store,
        request.faults,
        request.bucket,
        request.name,
        body_chunks(request.http.content),
        request.fields(),
        ExpectedChecksums.of(request.headers),
        Preconditions.of_headers(request.headers),
    )
    return web.Response(headers=_upload_headers(stored))


async def delete_object(request: XmlRequest) -> web.StreamResponse:
    """DELETE Object"""
    request.begin("storage.objects.delete", request.bucket, request.name)
    conditions = Preconditions.of_headers(request.headers)
    request.store.objects.delete(request.bucket, request.name, request.generation(), conditions)
    return web.Response(status=204)


async def compose_object(request: XmlRequest) -> web.StreamResponse:
    """PUT Object - Compose"""
    request.begin("storage.objects.create", request.bucket, request.name)
    document = await read_xml(request.http, "ComposeRequest")
    sources: list[JsonObject] = []
    for component in document.findall("Component"):
        conditions = {
            name: component.findtext(element)
            for element, name in COMPONENT_CONDITIONS.items()
            if component.find(element) is not None
        }
        generation, name = component.findtext("Generation"), text_of(component, "Name")
        require("storage.objects.get", request.bucket, name)
        source: JsonObject = {"name": name, "objectPreconditions": conditions}
        sources.append(source | ({"generation": generation} if generation else {}))
    stored = await compose(
        request.store,
        request.bucket,
        request.name,
        {"sourceObjects": sources, "destination": request.fields()},
        Preconditions.of_headers(request.headers),
    )
    return web.Response(headers=_upload_headers(stored))


def start_session(request: XmlRequest) -> web.StreamResponse:
    """POST Object with `x-goog-resumable: start`, the start of a resumable upload by signed URL"""
    if request.headers.get("x-goog-resumable", "").lower() != "start":
        raise invalid("Invalid value for header x-goog-resumable.")
    request.begin("storage.objects.create", request.bucket, request.name)
    check_object_name(request.name)
    conditions = Preconditions.of_headers(request.headers)
    session = request.store.upload_sessions.start(
        request.bucket, request.name, request.fields(), ExpectedChecksums.of(request.headers), conditions
    )
    path = f"{request.bucket}/{quote(request.name)}"
    location = f"{base_url_of(request.http)}/{path}?upload_id={session.id}"
    return web.Response(status=201, headers={"Location": location, "X-GUploader-UploadID": session.id})


def _copy(request: XmlRequest) -> web.StreamResponse:
    bucket, _, name = unquote(request.headers[COPY_SOURCE].removeprefix("/")).partition("/")
    request.begin("storage.objects.get", bucket, name)
    request.begin("storage.objects.create", request.bucket, request.name)
    generation = request.headers.get(f"{COPY_SOURCE}-generation")
    source = request.store.objects.get(
        bucket, name, parse_number("generation", generation) if generation is not None else None
    )
    source_conditions = Preconditions.of_headers(request.headers, prefix=f"{COPY_SOURCE}-if-")
    source_conditions.check(source.generation, source.metageneration)
    replaces = request.headers.get("x-goog-metadata-directive", "COPY").upper() == "REPLACE"
    fields: JsonObject = {"contentType": "application/octet-stream"} | request.fields() if replaces else {}
    conditions = Preconditions.of_headers(request.headers)
    stored = request.store.objects.copy(source, request.bucket, request.name, fields, conditions)
    response = xml_response(
        "CopyObjectResult", [("LastModified", stored.updated), ("ETag", f'"{xml_etag(stored)}"')]
    )
    response.headers.update({"X-Goog-Generation": str(stored.generation), "X-Goog-Metageneration": "1"})
    return response


def _upload_headers(stored: StoredObject) -> dict[str, str]:
    headers = object_headers(stored, f'"{xml_etag(stored)}"')
    return {name: value for name, value in headers.items() if name.startswith(("X-Goog-", "ETag"))}


Operation = Callable[[XmlRequest], Awaitable[web.StreamResponse]]

ROUTES: dict[tuple[str, str, str], Operation] = {
    ("service", "GET", ""): list_buckets,
    ("bucket", "GET", ""): list_objects,
    ("bucket", "GET", "versions"): list_objects,
    ("bucket", "GET", "uploads"): multipart_uploads.list_uploads,
    ("bucket", "GET", "location"): get_location,
    ("bucket", "GET", "versioning"): get_versioning,
    ("bucket", "HEAD", ""): head_bucket,
    ("bucket", "PUT", ""): create_bucket,
    ("bucket", "DELETE", ""): delete_bucket,
    ("object", "GET", ""): get_object,
    ("object", "HEAD", ""): get_object,
    ("object", "PUT", ""): put_object,
    ("object", "PUT", "compose"): compose_object,
    ("object", "DELETE", ""): delete_object,
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
            return start_session(request)
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
