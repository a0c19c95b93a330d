"""The XML API's operations on multipart uploads, https://cloud.google.com/storage/docs/multipart-uploads."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote

from aiohttp import web

from tpuctl.sim.gcs.authorization import base_url_of
from tpuctl.sim.gcs.checksums import ExpectedChecksums, hash_header
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.request_faults import with_upload_faults
from tpuctl.sim.gcs.rules import Preconditions, check_object_name, parse_number
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.store import concatenated
from tpuctl.sim.gcs.storage.upload_sessions import MultipartUpload, Part
from tpuctl.sim.gcs.uploads import body_chunks, spool
from tpuctl.sim.gcs.xml_api.documents import (
    S3_NAMESPACE,
    Elements,
    XmlRequest,
    hex_md5,
    malformed,
    read_xml,
    text_of,
    xml_response,
)

MOST_PARTS = 10_000

SMALLEST_PART = 5 << 20
"""Bytes of every part but the last."""


async def start(request: XmlRequest) -> web.StreamResponse:
    """Initiate Multipart Upload"""
    request.begin("storage.multipartUploads.create", request.bucket, request.name)
    check_object_name(request.name)
    upload = request.store.multipart_uploads.start(request.bucket, request.name, request.fields())
    content = [("Bucket", request.bucket), ("Key", request.name), ("UploadId", upload.id)]
    return xml_response("InitiateMultipartUploadResult", content, namespace=S3_NAMESPACE)


async def put_part(request: XmlRequest) -> web.StreamResponse:
    """Upload Part"""
    request.begin("storage.objects.create", request.bucket, request.name)
    number = parse_number("partNumber", request.query.get("partNumber", ""))
    if not 1 <= number <= MOST_PARTS:
        raise GcsError(400, f"Part number must be between 1 and {MOST_PARTS}, inclusive.")
    upload = _upload(request)
    with request.store.blobs.create() as writer:
        await spool(with_upload_faults(body_chunks(request.http.content)), writer)
        content = writer.finish()
        ExpectedChecksums.of(request.headers).check(content.crc32c, content.md5)
        part = request.store.multipart_uploads.put_part(upload, number, content)
    hashes = hash_header(part.crc32c, part.md5)
    return web.Response(headers={"ETag": f'"{hex_md5(part.md5)}"', "X-Goog-Hash": hashes})


async def complete(request: XmlRequest) -> web.StreamResponse:
    """Complete Multipart Upload"""
    request.begin("storage.objects.create", request.bucket, request.name)
    document = await read_xml(request.http, "CompleteMultipartUpload")
    listed = [
        (parse_number("PartNumber", text_of(part, "PartNumber")), text_of(part, "ETag").strip('"'))
        for part in document.findall("Part")
    ]
    upload = _upload(request)
    parts = _listed_parts(request.store.multipart_uploads.parts(upload), listed)
    conditions = Preconditions.of_headers(request.headers)
    request.store.objects.check(request.bucket, request.name, conditions)
    async with _joined(request, parts) as content:
        stored = request.store.multipart_uploads.complete(upload, content, conditions)
    response = xml_response(
        "CompleteMultipartUploadResult",
        [
            ("Location", f"{base_url_of(request.http)}/{request.bucket}/{quote(request.name)}"),
            ("Bucket", request.bucket),
            ("Key", request.name),
            ("ETag", f'"{_etag(parts)}"'),
        ],
        namespace=S3_NAMESPACE,
    )
    response.headers["X-Goog-Generation"] = str(stored.generation)
    response.headers["X-Goog-Hash"] = hash_header(stored.crc32c, stored.md5)
    return response


async def abort(request: XmlRequest) -> web.StreamResponse:
    """Abort Multipart Upload"""
    request.begin("storage.multipartUploads.abort", request.bucket, request.name)
    request.store.multipart_uploads.delete(_upload(request))
    return web.Response(status=204)


async def list_parts(request: XmlRequest) -> web.StreamResponse:
    """List Parts, on one page of up to `max-parts`"""
    request.begin("storage.multipartUploads.listParts", request.bucket, request.name)
    upload = _upload(request)
    after = parse_number("part-number-marker", request.query.get("part-number-marker", 0))
    limit = min(parse_number("max-parts", request.query.get("max-parts", 1000)), 1000)
    remaining = [part for part in request.store.multipart_uploads.parts(upload) if part.number > after]
    page = remaining[:limit]
    head: Elements = [
        ("Bucket", request.bucket),
        ("Key", request.name),
        ("UploadId", upload.id),
        ("PartNumberMarker", after),
        ("NextPartNumberMarker", page[-1].number if page else after),
        ("MaxParts", limit),
        ("IsTruncated", "true" if len(page) < len(remaining) else "false"),
    ]
    parts: Elements = [
        (
            "Part",
            [
                ("PartNumber", part.number),
                ("LastModified", part.created),
                ("ETag", f'"{hex_md5(part.md5)}"'),
                ("Size", part.size),
            ],
        )
        for part in page
    ]
    return xml_response("ListPartsResult", [*head, *parts], namespace=S3_NAMESPACE)


async def list_uploads(request: XmlRequest) -> web.StreamResponse:
    """List Multipart Uploads, on one page"""
    request.begin("storage.multipartUploads.list", request.bucket)
    request.store.buckets.get(request.bucket)
    prefix = request.query.get("prefix", "")
    uploads: Elements = [
        ("Upload", [("Key", upload.name), ("UploadId", upload.id), ("Initiated", upload.created)])
        for upload in request.store.multipart_uploads.in_bucket(request.bucket, prefix)
    ]
    head = [("Bucket", request.bucket), ("IsTruncated", "false")]
    return xml_response("ListMultipartUploadsResult", [*head, *uploads], namespace=S3_NAMESPACE)


def _upload(request: XmlRequest) -> MultipartUpload:
    return request.store.multipart_uploads.get(request.query["uploadId"], request.bucket, request.name)


def _listed_parts(parts: Sequence[Part], listed: Sequence[tuple[int, str]]) -> list[Part]:
    """Return the parts with the listed numbers and ETags; raises 400 if one was not uploaded."""
    if not listed:
        raise malformed("at least one Part is needed.")
    numbers = [number for number, _ in listed]
    if numbers != sorted(set(numbers)):
        raise GcsError(400, "The list of parts was not in ascending order.", xml_code="InvalidPartOrder")
    by_number = {part.number: part for part in parts}
    complete = []
    for number, tag in listed:
        part = by_number.get(number)
        if part is None or hex_md5(part.md5) != tag:
            raise GcsError(
                400,
                "One or more of the specified parts could not be found. The part may not have been uploaded, "
                "or the specified entity tag may not match the part's entity tag.",
                xml_code="InvalidPart",
            )
        complete.append(part)
    if any(part.size < SMALLEST_PART for part in complete[:-1]):
        raise GcsError(
            400, "Your proposed upload is smaller than the minimum allowed size.", xml_code="EntityTooSmall"
        )
    return complete


@asynccontextmanager
async def _joined(request: XmlRequest, parts: Sequence[Part]) -> AsyncIterator[Content]:
    if len(parts) == 1:  # the object uses the blob of the part
        only = parts[0]
        yield Content(only.blob, only.size, only.crc32c, None)
        return
    async with concatenated(request.store, [part.content for part in parts]) as content:
        yield content


def _etag(parts: Sequence[Part]) -> str:
    """Return the ETag of a multipart upload: the MD5 of the parts' MD5s, and the number of parts."""
    digests = b"".join(bytes.fromhex(hex_md5(part.md5)) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
