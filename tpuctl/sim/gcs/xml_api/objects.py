"""The XML API's operations on objects, with their bytes; resumable uploads only start here."""

from __future__ import annotations

from urllib.parse import quote, unquote

from aiohttp import web

from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.downloads.headers import object_headers
from tpuctl.sim.gcs.downloads.sending import send_object
from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.http.authorization import require
from tpuctl.sim.gcs.http.base_url import base_url_of
from tpuctl.sim.gcs.rules.names import check_object_name
from tpuctl.sim.gcs.rules.parameters import parse_number
from tpuctl.sim.gcs.rules.preconditions import Preconditions, check_etags
from tpuctl.sim.gcs.storage.composing import compose
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.uploads.single_request import store_object
from tpuctl.sim.gcs.uploads.spooling import body_chunks
from tpuctl.sim.gcs.xml_api.documents import read_xml, text_of, xml_response
from tpuctl.sim.gcs.xml_api.request import XmlRequest, xml_etag
from tpuctl.sim.json_values import JsonObject

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
