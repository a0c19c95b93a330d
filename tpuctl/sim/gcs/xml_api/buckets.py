"""The XML API's operations on the service and on buckets, which include the listing of objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import quote

from aiohttp import web

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import required
from tpuctl.sim.gcs.http.authorization import authorize_in_project, require
from tpuctl.sim.gcs.rules.list_query import LARGEST_PAGE, ListQuery, Position
from tpuctl.sim.gcs.rules.parameters import parse_number
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.listing import Page, list_page
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.xml_api.documents import Content, Elements, read_xml, xml_response
from tpuctl.sim.gcs.xml_api.request import XmlRequest, xml_etag

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
