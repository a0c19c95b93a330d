"""Builds the response headers that describe an object."""

from __future__ import annotations

from tpuctl.sim.gcs.checksums import hash_header
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import http_date

FIELD_HEADERS = {
    "contentType": "Content-Type",
    "contentEncoding": "Content-Encoding",
    "contentDisposition": "Content-Disposition",
    "contentLanguage": "Content-Language",
    "cacheControl": "Cache-Control",
}
"""Field of an object -> its header."""


def object_headers(stored: StoredObject, etag: str) -> dict[str, str]:
    """Return the headers of an object's bytes; the JSON API's etag has no quotes there."""
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=0",
        "ETag": etag,
        "Last-Modified": http_date(stored.updated),
        "X-Goog-Generation": str(stored.generation),
        "X-Goog-Hash": hash_header(stored.crc32c, stored.md5),
        "X-Goog-Metageneration": str(stored.metageneration),
        "X-Goog-Storage-Class": stored.storage_class,
        "X-Goog-Stored-Content-Encoding": stored.text("contentEncoding") or "identity",
        "X-Goog-Stored-Content-Length": str(stored.size),
    }
    for field, header in FIELD_HEADERS.items():
        if stored.text(field):
            headers[header] = stored.text(field)
    for name, value in stored.custom_metadata.items():
        if _is_header(name, value):
            headers[f"X-Goog-Meta-{name}"] = value
    return headers


def _is_header(name: str, value: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum() and value.isprintable()
