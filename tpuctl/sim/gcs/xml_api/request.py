"""One request to the XML API: bucket and object by path or host, fields by headers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.http.request_faults import begin_operation
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.rules.names import decode_segment
from tpuctl.sim.gcs.rules.parameters import parse_number
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.json_values import JsonObject

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
