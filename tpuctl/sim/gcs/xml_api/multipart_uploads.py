"""Multipart uploads of the XML API, https://cloud.google.com/storage/docs/multipart-uploads."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote

from aiohttp import web

from tpuctl.sim.gcs.checksums import Claims, hash_header
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.base_url import origin_of
from tpuctl.sim.gcs.http.fault_middleware import received
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions, parse_number
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.composing import joined
from tpuctl.sim.gcs.storage.multipart_uploads import Multipart, Part
from tpuctl.sim.gcs.uploads.spooling import arriving, spool
from tpuctl.sim.gcs.xml_api.documents import S3_NAMESPACE, answer_with_xml, malformed, read_xml, text_of
from tpuctl.sim.gcs.xml_api.request import XmlRequest, hex_md5

MOST_PARTS = 10_000

SMALLEST_PART = 5 << 20
"""Bytes of every part but the last."""


async def start(call: XmlRequest) -> web.StreamResponse:
    """Initiate Multipart Upload"""
    call.refuse_if_asked("storage.multipartUploads.create", call.bucket, call.name)
    check_object_name(call.name)
    upload = call.store.multiparts.start(call.bucket, call.name, call.fields())
    content = [("Bucket", call.bucket), ("Key", call.name), ("UploadId", upload.id)]
    return answer_with_xml("InitiateMultipartUploadResult", content, namespace=S3_NAMESPACE)


async def put_part(call: XmlRequest) -> web.StreamResponse:
    """Upload Part"""
    call.refuse_if_asked("storage.objects.create", call.bucket, call.name)
    number = parse_number("partNumber", call.query.get("partNumber", ""))
    if not 1 <= number <= MOST_PARTS:
        raise GcsError(400, f"Part number must be between 1 and {MOST_PARTS}, inclusive.")
    upload = _upload(call)
    with call.store.blobs.create() as writer:
        await spool(received(arriving(call.request.content)), writer)
        content = writer.finish()
        Claims.of(call.headers).check(content.crc32c, content.md5)
        part = call.store.multiparts.put_part(upload, number, content)
    hashes = hash_header(part.crc32c, part.md5)
    return web.Response(headers={"ETag": f'"{hex_md5(part.md5)}"', "X-Goog-Hash": hashes})


async def complete(call: XmlRequest) -> web.StreamResponse:
    """Complete Multipart Upload"""
    call.refuse_if_asked("storage.objects.create", call.bucket, call.name)
    document = await read_xml(call.request, "CompleteMultipartUpload")
    listed = [
        (parse_number("PartNumber", text_of(part, "PartNumber")), text_of(part, "ETag").strip('"'))
        for part in document.findall("Part")
    ]
    upload = _upload(call)
    chosen = _chosen(call.store.multiparts.parts(upload), listed)
    conditions = Preconditions.of_headers(call.headers)
    call.store.objects.check(call.bucket, call.name, conditions)
    async with _whole(call, chosen) as content:
        stored = call.store.multiparts.finish(upload, content, conditions)
    answer = answer_with_xml(
        "CompleteMultipartUploadResult",
        [
            ("Location", f"{origin_of(call.request)}/{call.bucket}/{quote(call.name)}"),
            ("Bucket", call.bucket),
            ("Key", call.name),
            ("ETag", f'"{_etag(chosen)}"'),
        ],
        namespace=S3_NAMESPACE,
    )
    answer.headers["X-Goog-Generation"] = str(stored.generation)
    answer.headers["X-Goog-Hash"] = hash_header(stored.crc32c, stored.md5)
    return answer


async def abort(call: XmlRequest) -> web.StreamResponse:
    """Abort Multipart Upload"""
    call.refuse_if_asked("storage.multipartUploads.abort", call.bucket, call.name)
    call.store.multiparts.drop(_upload(call))
    return web.Response(status=204)


async def list_parts(call: XmlRequest) -> web.StreamResponse:
    """List Parts, on one page of up to `max-parts`"""
    call.refuse_if_asked("storage.multipartUploads.listParts", call.bucket, call.name)
    upload = _upload(call)
    after = parse_number("part-number-marker", call.query.get("part-number-marker", 0))
    limit = min(parse_number("max-parts", call.query.get("max-parts", 1000)), 1000)
    rest = [part for part in call.store.multiparts.parts(upload) if part.number > after]
    page = rest[:limit]
    head = [
        ("Bucket", call.bucket),
        ("Key", call.name),
        ("UploadId", upload.id),
        ("PartNumberMarker", after),
        ("NextPartNumberMarker", page[-1].number if page else after),
        ("MaxParts", limit),
        ("IsTruncated", "true" if len(page) < len(rest) else "false"),
    ]
    parts = [
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
    return answer_with_xml("ListPartsResult", [*head, *parts], namespace=S3_NAMESPACE)


async def list_uploads(call: XmlRequest) -> web.StreamResponse:
    """List Multipart Uploads, on one page"""
    call.refuse_if_asked("storage.multipartUploads.list", call.bucket)
    call.store.buckets.get(call.bucket)
    found = call.store.multiparts.in_bucket(call.bucket, call.query.get("prefix", ""))
    uploads = [
        ("Upload", [("Key", one.name), ("UploadId", one.id), ("Initiated", one.created)]) for one in found
    ]
    head = [("Bucket", call.bucket), ("IsTruncated", "false")]
    return answer_with_xml("ListMultipartUploadsResult", [*head, *uploads], namespace=S3_NAMESPACE)


def _upload(call: XmlRequest) -> Multipart:
    return call.store.multiparts.get(call.query["uploadId"], call.bucket, call.name)


def _chosen(parts: Sequence[Part], listed: Sequence[tuple[int, str]]) -> list[Part]:
    """Return the listed parts in the order of the list; raises 400 where it does not fit what came in."""
    if not listed:
        raise malformed("at least one Part is needed.")
    numbers = [number for number, _ in listed]
    if numbers != sorted(set(numbers)):
        raise GcsError(400, "The list of parts was not in ascending order.", xml_code="InvalidPartOrder")
    known = {part.number: part for part in parts}
    chosen = []
    for number, tag in listed:
        part = known.get(number)
        if part is None or hex_md5(part.md5) != tag:
            raise GcsError(
                400,
                "One or more of the specified parts could not be found. The part may not have been uploaded, "
                "or the specified entity tag may not match the part's entity tag.",
                xml_code="InvalidPart",
            )
        chosen.append(part)
    if any(part.size < SMALLEST_PART for part in chosen[:-1]):
        raise GcsError(
            400, "Your proposed upload is smaller than the minimum allowed size.", xml_code="EntityTooSmall"
        )
    return chosen


@asynccontextmanager
async def _whole(call: XmlRequest, parts: Sequence[Part]) -> AsyncIterator[Content]:
    if len(parts) == 1:  # its bytes are the object's, as they are
        only = parts[0]
        yield Content(only.blob, only.size, only.crc32c, None)
        return
    async with joined(call.store, [part.content for part in parts]) as content:
        yield content


def _etag(parts: Sequence[Part]) -> str:
    """Return a tag in the manner of multipart uploads: the MD5 of the parts' MD5s, and how many there are."""
    digests = b"".join(bytes.fromhex(hex_md5(part.md5)) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
