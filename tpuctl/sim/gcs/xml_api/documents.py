"""XML documents: written from pairs of element and content, parsed without entities and namespaces.

- One request to the XML API: bucket and object by path or host, fields by headers.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import escape

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.request_faults import begin_operation
from tpuctl.sim.gcs.rules import decode_segment, parse_number
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.json_values import JsonObject

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
"""Of documents about multipart uploads, as clients expect."""

GCS_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
"""Of all other documents."""

LARGEST = 4 << 20
"""Bytes of a document that a client may send."""

Content: TypeAlias = "str | int | Elements"
"""What is in an element: text, or more elements."""

Elements: TypeAlias = "Sequence[tuple[str, Content]]"
"""Names of elements, each with its content."""


def xml_response(name: str, content: Content, *, namespace: str = GCS_NAMESPACE) -> web.Response:
    """Return a response with a document."""
    text = f"<?xml version='1.0' encoding='UTF-8'?><{name} xmlns='{namespace}'>{_render(content)}</{name}>"
    return web.Response(content_type="application/xml", text=text)


async def read_xml(request: web.Request, name: str) -> ElementTree.Element:
    """Parse the body of a request, a document `name`, and drop its namespaces; raises 400."""
    body = await request.content.read(LARGEST + 1)
    while not request.content.at_eof() and len(body) <= LARGEST:
        body += await request.content.read(LARGEST + 1)
    if len(body) > LARGEST:
        raise GcsError(400, "The XML document is too large.", xml_code="MalformedXML")
    try:
        _refuse_document_type(body)
        root = ElementTree.fromstring(body)  # noqa: S314  it has no document type, hence no entities
    except (ElementTree.ParseError, expat.ExpatError, ValueError, LookupError) as error:
        raise malformed(str(error)) from error
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    if root.tag != name:
        raise malformed(f"{name} was expected.")
    return root


def _refuse_document_type(body: bytes) -> None:
    """Raise ValueError for a document type, in whatever encoding: its entities can grow without bounds."""

    def refuse(*_declaration: object) -> None:
        raise ValueError("a document type is not allowed")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(body, True)


def text_of(element: ElementTree.Element, name: str) -> str:
    """Return the text of an element's child; raises 400 if it is missing."""
    text = element.findtext(name)
    if text is None:
        raise malformed(f"{name} is missing.")
    return text.strip()


def malformed(message: str) -> GcsError:
    """The document is invalid: 400."""
    return GcsError(400, f"The XML you provided was not well-formed: {message}", xml_code="MalformedXML")


def _render(content: Content) -> str:
    if isinstance(content, (str, int)):
        return escape(_printable(str(content)))
    return "".join(f"<{name}>{_render(below)}</{name}>" for name, below in content)


def _printable(text: str) -> str:
    """Drop the characters that XML 1.0 cannot represent."""
    return "".join(char for char in text if char in "\t\n\r" or " " <= char <= "\ud7ff" or char >= "\ue000")


BUCKET_HOSTS = ".storage.googleapis.com"
"""The end of a host whose beginning is a bucket."""

METADATA_PREFIX = "x-goog-meta-"

HEADER_FIELDS = {
    "Content-Type": "contentType",
    "Content-Encoding": "contentEncoding",
    "Content-Disposition": "contentDisposition",
    "Content-Language": "contentLanguage",
    "Cache-Control": "cacheControl",
    "x-goog-custom-time": "customTime",
    "x-goog-storage-class": "storageClass",
}
"""Header of an upload -> the field that it sets."""


@dataclass(frozen=True)
class XmlRequest:
    """One request; `bucket` and `name` are empty in requests to the service and to a bucket."""

    store: Store
    faults: FaultRegistry
    http: web.Request
    bucket: str
    name: str

    @classmethod
    def of(cls, store: Store, faults: FaultRegistry, request: web.Request) -> XmlRequest:
        """Parse bucket and object name; raises 400 if they are not UTF-8."""
        bucket, name = _target(request)
        return cls(store, faults, request, bucket, name)

    @property
    def query(self) -> Mapping[str, str]:
        return self.http.query

    @property
    def headers(self) -> Mapping[str, str]:
        return self.http.headers

    def generation(self) -> int | None:
        """Return the generation in the query, or None for the live object."""
        text = self.query.get("generation")
        return parse_number("generation", text) if text is not None else None

    def fields(self) -> JsonObject:
        """Return the fields of an object that the headers set."""
        return fields_of(self.headers)

    def begin(self, method: str, *resource: str) -> None:
        """Record the operation as an event; raises GcsError if a fault fires in its place."""
        begin_operation(
            self.faults, method, "/".join(resource), self.fields() if method.endswith(".create") else None
        )


def fields_of(headers: Mapping[str, str]) -> JsonObject:
    """Return the fields of an object that headers set."""
    fields: JsonObject = {field: headers[name] for name, field in HEADER_FIELDS.items() if name in headers}
    metadata = {
        name[len(METADATA_PREFIX) :].lower(): value
        for name, value in headers.items()
        if name.lower().startswith(METADATA_PREFIX)
    }
    return fields | ({"metadata": metadata} if metadata else {})


def xml_etag(stored: StoredObject) -> str:
    """Return the XML API's entity tag: the MD5 in hexadecimal, where there is one."""
    if stored.md5:
        return hex_md5(stored.md5)
    return etag(stored.generation, stored.metageneration)


def hex_md5(md5: str) -> str:
    """Return an MD5 in hexadecimal, for one in base64 as in the JSON API."""
    return base64.b64decode(md5).hex()


def _target(request: web.Request) -> tuple[str, str]:
    path = request.rel_url.raw_path.removeprefix("/")
    host = request.host.rpartition(":")[0] or request.host
    if host.endswith(BUCKET_HOSTS):
        return host.removesuffix(BUCKET_HOSTS), decode_segment(path)
    bucket, _, name = path.partition("/")
    return decode_segment(bucket), decode_segment(name)
