"""The XML API, as far as TensorFlow, curl and signed URLs use it: /BUCKET/OBJECT."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from tpuctl.sim.faults import Faults
from tpuctl.sim.gcs.checksums import Claims
from tpuctl.sim.gcs.downloads import media_headers, send
from tpuctl.sim.gcs.errors import GcsError, refuse_if_asked
from tpuctl.sim.gcs.names import decode_segment
from tpuctl.sim.gcs.objects import StoredObject
from tpuctl.sim.gcs.preconditions import Preconditions, check_etags, parse_number
from tpuctl.sim.gcs.resources import etag
from tpuctl.sim.gcs.store import Store
from tpuctl.sim.gcs.uploads import receive

OWN_HOSTS = ".storage.googleapis.com"
"""Hosts that end in this name a bucket before it."""

METADATA_PREFIX = "x-goog-meta-"

HEADER_FIELDS = {
    "Content-Type": "contentType",
    "Content-Encoding": "contentEncoding",
    "Content-Disposition": "contentDisposition",
    "Content-Language": "contentLanguage",
    "Cache-Control": "cacheControl",
    "x-goog-storage-class": "storageClass",
}
"""Header of an upload -> the field it sets."""

SUBRESOURCES = frozenset(
    {"acl", "cors", "lifecycle", "uploads", "uploadId", "compose", "tagging", "versioning"}
)
"""Query parameters that mean another resource than the object itself."""


class XmlApi:
    """Answers requests to objects by their path."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._methods: Mapping[str, Callable[[web.Request, str, str], Awaitable[web.StreamResponse]]] = {
            "GET": self._get,
            "HEAD": self._get,
            "PUT": self._put,
            "DELETE": self._delete,
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; raises GcsError."""
        bucket, name = _target(request)
        method = self._methods.get(request.method)
        if method is None or not bucket or not name or SUBRESOURCES & set(request.query):
            raise GcsError(501, "The simulator's XML API has objects only; use the JSON API for this.")
        return await method(request, bucket, name)

    async def _get(self, request: web.Request, bucket: str, name: str) -> web.StreamResponse:
        refuse_if_asked(self._faults, "storage.objects.get", f"{bucket}/{name}")
        stored = self._store.objects.get(bucket, name, _generation(request))
        Preconditions.of_headers(request.headers).check(
            stored.generation, stored.metageneration, reading=True
        )
        check_etags(request.headers, _etag(stored))
        return await send(self._store, request, stored, _etag(stored))

    async def _put(self, request: web.Request, bucket: str, name: str) -> web.StreamResponse:
        if "x-goog-copy-source" in request.headers:
            raise GcsError(501, "The simulator's XML API cannot copy; use the JSON API for this.")
        stored = await receive(
            self._store,
            self._faults,
            bucket,
            name,
            request.content.iter_any(),
            _fields(request.headers),
            Claims.of(request.headers),
            Preconditions.of_headers(request.headers),
        )
        headers = media_headers(stored, _etag(stored))
        return web.Response(
            headers={name: value for name, value in headers.items() if name.startswith(("X-Goog-", "ETag"))}
        )

    async def _delete(self, request: web.Request, bucket: str, name: str) -> web.StreamResponse:
        refuse_if_asked(self._faults, "storage.objects.delete", f"{bucket}/{name}")
        conditions = Preconditions.of_headers(request.headers)
        self._store.objects.delete(bucket, name, _generation(request), conditions)
        return web.Response(status=204)


def _target(request: web.Request) -> tuple[str, str]:
    path = request.rel_url.raw_path.removeprefix("/")
    host = request.host.rpartition(":")[0] or request.host
    if host.endswith(OWN_HOSTS):
        return host.removesuffix(OWN_HOSTS), decode_segment(path)
    bucket, _, name = path.partition("/")
    return decode_segment(bucket), decode_segment(name)


def _generation(request: web.Request) -> int | None:
    text = request.query.get("generation")
    return parse_number("generation", text) if text is not None else None


def _fields(headers: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        field: headers[name] for name, field in HEADER_FIELDS.items() if name in headers
    }
    metadata = {
        name[len(METADATA_PREFIX) :].lower(): value
        for name, value in headers.items()
        if name.lower().startswith(METADATA_PREFIX)
    }
    return fields | ({"metadata": metadata} if metadata else {})


def _etag(stored: StoredObject) -> str:
    """Return the XML API's entity tag: the MD5 in hexadecimal, where there is one."""
    if stored.md5:
        return base64.b64decode(stored.md5).hex()
    return etag(stored.generation, stored.metageneration)
