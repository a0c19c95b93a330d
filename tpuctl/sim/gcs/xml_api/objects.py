"""The XML API's operations on objects."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from aiohttp import web

from tpuctl.sim.gcs.checksums import Claims
from tpuctl.sim.gcs.downloads.media import media_headers, send
from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.http.base_url import origin_of
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions, check_etags, parse_number
from tpuctl.sim.gcs.storage.composing import compose
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.uploads.routes import receive
from tpuctl.sim.gcs.uploads.spooling import arriving
from tpuctl.sim.gcs.xml_api.documents import answer_with_xml, read_xml, text_of
from tpuctl.sim.gcs.xml_api.request import XmlRequest, xml_etag

COPY_SOURCE = "x-goog-copy-source"

COMPONENT_CONDITIONS = {
    "IfGenerationMatch": "ifGenerationMatch",
    "IfMetagenerationMatch": "ifMetagenerationMatch",
}
"""Element of a compose request -> condition of the JSON API."""


async def get_object(call: XmlRequest) -> web.StreamResponse:
    """GET and HEAD Object"""
    call.refuse_if_asked("storage.objects.get", call.bucket, call.name)
    stored = call.store.objects.get(call.bucket, call.name, call.generation())
    conditions = Preconditions.of_headers(call.headers)
    conditions.check(stored.generation, stored.metageneration, reading=True)
    check_etags(call.headers, xml_etag(stored))
    return await send(call.store, call.request, stored, xml_etag(stored))


async def put_object(call: XmlRequest) -> web.StreamResponse:
    """PUT Object, or with a source in the headers, PUT Object - Copy"""
    if COPY_SOURCE in call.headers:
        return _copy(call)
    stored = await receive(
        call.store,
        call.faults,
        call.bucket,
        call.name,
        arriving(call.request.content),
        call.fields(),
        Claims.of(call.headers),
        Preconditions.of_headers(call.headers),
    )
    return web.Response(headers=_upload_headers(stored))


async def delete_object(call: XmlRequest) -> web.StreamResponse:
    """DELETE Object"""
    call.refuse_if_asked("storage.objects.delete", call.bucket, call.name)
    conditions = Preconditions.of_headers(call.headers)
    call.store.objects.delete(call.bucket, call.name, call.generation(), conditions)
    return web.Response(status=204)


async def compose_object(call: XmlRequest) -> web.StreamResponse:
    """PUT Object - Compose"""
    call.refuse_if_asked("storage.objects.create", call.bucket, call.name)
    document = await read_xml(call.request, "ComposeRequest")
    sources: list[dict[str, Any]] = []
    for component in document.findall("Component"):
        on_source = {
            name: component.findtext(element)
            for element, name in COMPONENT_CONDITIONS.items()
            if component.find(element) is not None
        }
        generation = component.findtext("Generation")
        source: dict[str, Any] = {"name": text_of(component, "Name"), "objectPreconditions": on_source}
        sources.append(source | ({"generation": generation} if generation else {}))
    request = {"sourceObjects": sources, "destination": call.fields()}
    conditions = Preconditions.of_headers(call.headers)
    stored = await compose(call.store, call.bucket, call.name, request, conditions)
    return web.Response(headers=_upload_headers(stored))


def start_session(call: XmlRequest) -> web.StreamResponse:
    """POST Object with `x-goog-resumable: start`, as signed URLs for uploads are used"""
    if call.headers.get("x-goog-resumable", "").lower() != "start":
        raise invalid("Invalid value for header x-goog-resumable.")
    call.refuse_if_asked("storage.objects.create", call.bucket, call.name)
    check_object_name(call.name)
    conditions = Preconditions.of_headers(call.headers)
    session = call.store.sessions.start(
        call.bucket, call.name, call.fields(), Claims.of(call.headers), conditions
    )
    path = f"{call.bucket}/{quote(call.name)}"
    location = f"{origin_of(call.request)}/{path}?upload_id={session.id}"
    return web.Response(status=201, headers={"Location": location, "X-GUploader-UploadID": session.id})


def _copy(call: XmlRequest) -> web.StreamResponse:
    bucket, _, name = unquote(call.headers[COPY_SOURCE].removeprefix("/")).partition("/")
    call.refuse_if_asked("storage.objects.get", bucket, name)
    call.refuse_if_asked("storage.objects.create", call.bucket, call.name)
    generation = call.headers.get(f"{COPY_SOURCE}-generation")
    source = call.store.objects.get(
        bucket, name, parse_number("generation", generation) if generation is not None else None
    )
    on_source = Preconditions.of_headers(call.headers, prefix=f"{COPY_SOURCE}-if-")
    on_source.check(source.generation, source.metageneration)
    replaces = call.headers.get("x-goog-metadata-directive", "COPY").upper() == "REPLACE"
    fields = {"contentType": "application/octet-stream", **call.fields()} if replaces else {}
    conditions = Preconditions.of_headers(call.headers)
    stored = call.store.objects.copy(source, call.bucket, call.name, fields, conditions)
    answer = answer_with_xml(
        "CopyObjectResult", [("LastModified", stored.updated), ("ETag", f'"{xml_etag(stored)}"')]
    )
    answer.headers.update({"X-Goog-Generation": str(stored.generation), "X-Goog-Metageneration": "1"})
    return answer


def _upload_headers(stored: StoredObject) -> dict[str, str]:
    headers = media_headers(stored, xml_etag(stored))
    return {name: value for name, value in headers.items() if name.startswith(("X-Goog-", "ETag"))}
