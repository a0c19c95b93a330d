"""XML documents: written from pairs of element and content, parsed without entities and namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import escape

from aiohttp import web

from tpuctl.sim.gcs.errors import GcsError

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
