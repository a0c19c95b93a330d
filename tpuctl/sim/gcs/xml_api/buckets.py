"""The XML API's operations on the service and on buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from aiohttp import web

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import required
from tpuctl.sim.gcs.json_api.resources import bucket_resource
from tpuctl.sim.gcs.rules.preconditions import Preconditions, parse_number
from tpuctl.sim.gcs.storage.listing import LARGEST_PAGE, ListQuery, Page, Position, list_page
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.xml_api.documents import Pairs, answer_with_xml, read_xml
from tpuctl.sim.gcs.xml_api.request import XmlRequest, xml_etag


async def list_buckets(call: XmlRequest) -> web.StreamResponse:
    """GET Service"""
    project = call.headers.get("x-goog-project-id") or call.query.get("project")
    if not project:
        raise required("x-goog-project-id")
    call.refuse_if_asked("storage.buckets.list", project)
    buckets = [
        ("Bucket", [("Name", bucket.name), ("CreationDate", bucket.created)])
        for bucket in call.store.buckets.of_project(project)
    ]
    owner = [("ID", str(project_number(project)))]
    return answer_with_xml("ListAllMyBucketsResult", [("Owner", owner), ("Buckets", buckets)])


async def list_objects(call: XmlRequest) -> web.StreamResponse:
    """GET Bucket (List Objects), version 1 or with `list-type=2` version 2"""
    call.refuse_if_asked("storage.objects.list", call.bucket)
    call.store.buckets.get(call.bucket)
    query = _list_query(call.query)
    page = list_page(call.store.database, call.bucket, query) if query.limit else Page()
    second = call.query.get("list-type") == "2"
    encode = quote if call.query.get("encoding-type") == "url" else str
    head = [
        ("Name", call.bucket),
        ("Prefix", encode(query.prefix)),
        *([] if second else [("Marker", encode(call.query.get("marker", "")))]),
        *([("Delimiter", encode(query.delimiter))] if query.delimiter else []),
        *([("KeyCount", len(page))] if second else []),
        ("MaxKeys", query.limit),
        ("IsTruncated", "true" if page.next else "false"),
        *_next(page, encode, second=second),
    ]
    kind = "Version" if query.versions else "Contents"
    contents = [(kind, _entry(stored, encode)) for stored in page.items]
    prefixes = [("CommonPrefixes", [("Prefix", encode(prefix))]) for prefix in page.prefixes]
    name = "ListVersionsResult" if query.versions else "ListBucketResult"
    return answer_with_xml(name, [*head, *contents, *prefixes])


async def get_location(call: XmlRequest) -> web.StreamResponse:
    """GET Bucket location"""
    bucket = call.store.buckets.get(call.bucket)
    return answer_with_xml("LocationConstraint", bucket_resource(bucket, "")["location"])


async def get_versioning(call: XmlRequest) -> web.StreamResponse:
    """GET Bucket versioning"""
    versioned = call.store.buckets.get(call.bucket).versioned
    return answer_with_xml("VersioningConfiguration", [("Status", "Enabled")] if versioned else [])


async def head_bucket(call: XmlRequest) -> web.StreamResponse:
    """HEAD Bucket"""
    call.refuse_if_asked("storage.buckets.get", call.bucket)
    bucket = call.store.buckets.get(call.bucket)
    return web.Response(headers={"X-Goog-Metageneration": str(bucket.metageneration)})


async def create_bucket(call: XmlRequest) -> web.StreamResponse:
    """PUT Bucket"""
    project = call.headers.get("x-goog-project-id")
    if not project:
        raise required("x-goog-project-id")
    call.refuse_if_asked("storage.buckets.create", call.bucket)
    fields = {}
    if call.request.body_exists:
        document = await read_xml(call.request, "CreateBucketConfiguration")
        wanted = {"location": "LocationConstraint", "storageClass": "StorageClass"}
        found = {field: document.findtext(element) for field, element in wanted.items()}
        fields = {field: text.strip() for field, text in found.items() if text}
    call.store.create_bucket(call.bucket, project, **fields)
    return web.Response()


async def delete_bucket(call: XmlRequest) -> web.StreamResponse:
    """DELETE Bucket"""
    call.refuse_if_asked("storage.buckets.delete", call.bucket)
    call.store.delete_bucket(call.bucket, Preconditions.of_headers(call.headers))
    return web.Response(status=204)


def _list_query(query: Mapping[str, str]) -> ListQuery:
    limit = min(parse_number("max-keys", query.get("max-keys", LARGEST_PAGE)), LARGEST_PAGE)
    wanted = ListQuery(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        versions="versions" in query,
        limit=limit,
    )
    token = query.get("continuation-token")
    if token:
        return replace(wanted, position=Position.of_token(token))
    marker = query.get("start-after" if query.get("list-type") == "2" else "marker", "")
    return replace(wanted, position=_after(marker, wanted)) if marker else wanted


def _after(marker: str, query: ListQuery) -> Position:
    """Return where the listing goes on after the name or the common prefix that was shown last."""
    if marker.startswith(query.prefix) and query.common_prefix(marker) == marker:
        return Position(marker, prefix=marker)
    return Position(marker + "\0")


def _next(page: Page, encode: object, *, second: bool) -> Pairs:
    if page.next is None:
        return []
    if second:
        return [("NextContinuationToken", page.next.to_token())]
    last = max([stored.name for stored in page.items] + page.prefixes)
    return [("NextMarker", encode(last) if callable(encode) else last)]


def _entry(stored: StoredObject, encode: object) -> Pairs:
    return [
        ("Key", encode(stored.name) if callable(encode) else stored.name),
        ("Generation", stored.generation),
        ("MetaGeneration", stored.metageneration),
        ("LastModified", stored.updated),
        ("ETag", f'"{xml_etag(stored)}"'),
        ("Size", stored.size),
        ("StorageClass", stored.fields.get("storageClass", "STANDARD")),
    ]
