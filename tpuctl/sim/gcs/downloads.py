"""Downloads of objects' bytes through the JSON API and the XML API.

- Builds the response headers that describe an object.
- Sends an object's bytes: in one piece, by sendfile, with faults, or gunzipped.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from aiohttp import web

from tpuctl.sim.gcs.checksums import hash_header
from tpuctl.sim.gcs.errors import GcsError, http_date
from tpuctl.sim.gcs.request_faults import BodyFaults, current_faults
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject

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


PIECE = 256 << 10
"""Bytes read at a time where sendfile cannot be used."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class ByteRange:
    """The bytes from `start` up to `end` of an object; `partial` if a Range header selects them."""

    start: int
    end: int
    partial: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start

    def read(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the bytes of the range in pieces."""
        file.seek(self.start)
        remaining = self.size
        while remaining and (piece := file.read(min(PIECE, remaining))):
            remaining -= len(piece)
            yield piece


def parse_range(header: str | None, size: int) -> ByteRange:
    """Return the bytes that a Range header selects; raises 416.

    All bytes without a header, and for an invalid one or one with several ranges.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match[0] == "bytes=-":
        return ByteRange(0, size)
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= size or (first and last and int(last) < int(first)):
        raise GcsError(416, "The requested range cannot be satisfied.")
    return ByteRange(start, end, partial=True)


SMALL = 256 << 10
"""Bytes that are read at once and sent in one piece with the headers: sendfile costs more steps."""


async def send_object(
    store: Store, request: web.Request, stored: StoredObject, etag: str
) -> web.StreamResponse:
    """Send an object's bytes, or for HEAD their headers; raises GcsError.

    The file is open before the first await, so that an overwrite meanwhile has no effect.
    """
    headers = object_headers(stored, etag)
    with store.blobs.open(stored.blob) as file:
        if request.method != "HEAD" and needs_gunzip(request, stored):
            return await _send_gunzipped(request, file, headers)
        byte_range = parse_range(request.headers.get("Range"), stored.size)
        if byte_range.partial:
            headers["Content-Range"] = f"bytes {byte_range.start}-{byte_range.end - 1}/{stored.size}"
        status = 206 if byte_range.partial else 200
        if request.method == "HEAD":
            return web.Response(status=status, headers={**headers, "Content-Length": str(byte_range.size)})
        faults = current_faults()
        response = web.StreamResponse(status=status, headers=headers)
        if faults and faults.body:
            return await _send_with_faults(request, file, byte_range, response, faults.body)
        if byte_range.size <= SMALL:
            file.seek(byte_range.start)
            return web.Response(status=status, headers=headers, body=file.read(byte_range.size))
        return await _send_file(request, file, byte_range, response)


async def _send_gunzipped(
    request: web.Request, file: BinaryIO, headers: dict[str, str]
) -> web.StreamResponse:
    first, pieces = gunzip(file)
    del headers["Content-Encoding"]
    headers |= {"Warning": "214 UploadServer gunzipped", "Vary": "Accept-Encoding"}
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    with _disconnect_on_error(request):
        await response.write(first)
        for piece in pieces:
            await response.write(piece)
        await response.write_eof()
    return response


async def _send_file(
    request: web.Request, file: BinaryIO, byte_range: ByteRange, response: web.StreamResponse
) -> web.StreamResponse:
    response.content_length = byte_range.size
    writer = await response.prepare(request)
    transport = request.transport
    if writer is None or transport is None:
        raise ConnectionResetError("the client has disconnected")
    with _disconnect_on_error(request):
        if transport.get_extra_info("sslcontext") is None:
            writer.send_headers()
            loop = asyncio.get_running_loop()
            await loop.sendfile(transport, file, byte_range.start, byte_range.size)
        else:
            for piece in byte_range.read(file):
                await response.write(piece)
        await response.write_eof()
    return response


async def _send_with_faults(
    request: web.Request,
    file: BinaryIO,
    byte_range: ByteRange,
    response: web.StreamResponse,
    faults: BodyFaults,
) -> web.StreamResponse:
    await faults.delay_response()
    response.content_length = byte_range.size
    await response.prepare(request)
    with _disconnect_on_error(request, after_sent=True):
        async for piece in faults.apply(_async(byte_range.read(file)), up=False):
            await response.write(piece)
        await response.write_eof()
    return response


async def _async(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@contextmanager
def _disconnect_on_error(request: web.Request, *, after_sent: bool = False) -> Iterator[None]:
    """Once the headers are sent, only a cut of the connection can report a failure.

    With `after_sent` the bytes written so far arrive first.
    """
    try:
        yield
    except BaseException as error:
        if request.transport is not None and not (after_sent and request.transport.is_closing()):
            request.transport.abort()
        if isinstance(error, (OSError, zlib.error)):
            raise ConnectionResetError("the download failed midway") from error
        raise


# Decompressive transcoding of gzip objects, https://cloud.google.com/storage/docs/transcoding.


def needs_gunzip(request: web.Request, stored: StoredObject) -> bool:
    """Whether an object has `contentEncoding: gzip` and the client does not accept gzip."""
    return (
        stored.text("contentEncoding") == "gzip"
        and "gzip" not in request.headers.get("Accept-Encoding", "").lower()
        and "no-transform" not in stored.text("cacheControl")
    )


def gunzip(file: BinaryIO) -> tuple[bytes, Iterator[bytes]]:
    """Return the first decompressed piece and the others; raises 503 if the bytes are not gzip."""
    pieces = _decompressed(file)
    try:
        return next(pieces, b""), pieces
    except zlib.error as error:
        raise GcsError(503, "The object says contentEncoding gzip, but its bytes are not.") from error


def _decompressed(file: BinaryIO) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=31)
    while compressed := file.read(PIECE):
        while compressed:
            if decompressor.eof:
                decompressor = zlib.decompressobj(wbits=31)
            yield decompressor.decompress(compressed, PIECE * 4)
            compressed = decompressor.unconsumed_tail or decompressor.unused_data
