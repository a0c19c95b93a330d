"""What a request to the XML API is about: bucket and object by path or host, fields by headers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.http.fault_middleware import refuse_if_asked
from tpuctl.sim.gcs.json_api.resources import etag
from tpuctl.sim.gcs.rules.names import decode_segment
from tpuctl.sim.gcs.rules.preconditions import parse_number
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject

OWN_HOSTS = ".storage.googleapis.com"
"""Hosts that end in this name a bucket before it."""

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
"""Header of an upload -> the field it sets."""


@dataclass(frozen=True)
class XmlRequest:
    """One request: `bucket` and `name` are empty where it is about no bucket or no object."""

    store: Store
    faults: FaultRegistry
    request: web.Request
    bucket: str
    name: str

    @classmethod
    def of(cls, store: Store, faults: FaultRegistry, request: web.Request) -> XmlRequest:
        """Read the target; raises 400 when it is not UTF-8."""
        bucket, name = _target(request)
        return cls(store, faults, request, bucket, name)

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    def generation(self) -> int | None:
        """Return the generation asked for, or None for the live one."""
        text = self.query.get("generation")
        return parse_number("generation", text) if text is not None else None

    def fields(self) -> dict[str, Any]:
        """Return the fields of an object that the headers set."""
        return fields_of(self.headers)

    def refuse_if_asked(self, method: str, *resource: str) -> None:
        """Raise the fault that was asked for this call of `method`, if one was."""
        refuse_if_asked(self.faults, method, "/".join(resource))


def fields_of(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of an object that headers set."""
    fields: dict[str, Any] = {
        field: headers[name] for name, field in HEADER_FIELDS.items() if name in headers
    }
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
    """Return an MD5 of the JSON API in hexadecimal."""
    return base64.b64decode(md5).hex()


def _target(request: web.Request) -> tuple[str, str]:
    path = request.rel_url.raw_path.removeprefix("/")
    host = request.host.rpartition(":")[0] or request.host
    if host.endswith(OWN_HOSTS):
        return host.removesuffix(OWN_HOSTS), decode_segment(path)
    bucket, _, name = path.partition("/")
    return decode_segment(bucket), decode_segment(name)
