"""The XML that clients and Cloud Storage exchange: written from plain pairs, read without surprises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from aiohttp import web

from tpuctl.sim.gcs.errors import GcsError

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
"""Of documents about multipart uploads; clients look for it."""

GCS_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
"""Of all other documents."""

LARGEST = 4 << 20
"""Bytes of a document that a client may send."""

Pairs = Sequence[tuple[str, Any]]
"""Names of elements and what is in them: text, or more pairs."""


def answer_with_xml(name: str, content: Pairs | str, *, namespace: str = GCS_NAMESPACE) -> web.Response:
    """Answer with a document."""
    text = f"<?xml version='1.0' encoding='UTF-8'?><{name} xmlns='{namespace}'>{_inside(content)}</{name}>"
    return web.Response(content_type="application/xml", text=text)


async def read_xml(request: web.Request, name: str) -> ElementTree.Element:
    """Return the document of a request without its namespaces; raises 400 for anything but `name`."""
    body = await request.content.read(LARGEST + 1)
    while not request.content.at_eof() and len(body) <= LARGEST:
        body += await request.content.read(LARGEST + 1)
    if len(body) > LARGEST:
        raise GcsError(400, "The XML document is too large.", xml_code="MalformedXML")
    try:
        if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
            raise ElementTree.ParseError("a document type is not allowed")
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise malformed(str(error)) from error
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    if root.tag != name:
        raise malformed(f"{name} was expected.")
    return root


def text_of(element: ElementTree.Element, name: str) -> str:
    """Return the text below an element; raises 400 when there is none."""
    text = element.findtext(name)
    if text is None:
        raise malformed(f"{name} is missing.")
    return text.strip()


def malformed(message: str) -> GcsError:
    """The document cannot be meant: 400."""
    return GcsError(400, f"The XML you provided was not well-formed: {message}", xml_code="MalformedXML")


def _inside(content: Any) -> str:
    if isinstance(content, (list, tuple)):
        return "".join(f"<{name}>{_inside(value)}</{name}>" for name, value in content)
    return escape(_printable(str(content)))


def _printable(text: str) -> str:
    """Leave out what XML 1.0 has no way to say."""
    return "".join(char for char in text if char in "\t\n\r" or " " <= char <= "\ud7ff" or char >= "\ue000")
