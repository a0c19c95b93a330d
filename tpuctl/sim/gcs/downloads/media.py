"""Sending objects' bytes: ranges, sendfile, and gzip taken off for clients that do not want it."""

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
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.fault_middleware import Exchange, current
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import http_date

SMALL = 64 << 10
"""Bytes that are read at once and sent in one piece with the headers."""

PIECE = 256 << 10
"""Bytes read at a time where sendfile cannot be used: under TLS and when decompressing."""

FIELD_HEADERS = {
    "contentType": "Content-Type",
    "contentEncoding": "Content-Encoding",
    "contentDisposition": "Content-Disposition",
    "contentLanguage": "Content-Language",
    "cacheControl": "Cache-Control",
}
"""Field of an object -> the header it is sent in."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class Span:
    """The bytes from `start` up to `end` of an object; `partial` when they were asked for by a range."""

    start: int
    end: int
    partial: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start


async def send(store: Store, request: web.Request, stored: StoredObject, tag: str) -> web.StreamResponse:
    """Answer with an object's bytes, or to HEAD with their headers; `tag` is the ETag. Raises GcsError.

    The file is open before anything is awaited, so an overwrite in between cannot be seen.
    """
    headers = media_headers(stored, tag)
    with store.blobs.open(stored.blob) as file:
        if request.method != "HEAD" and _wants_plain(request, stored):
            return await _send_decompressed(request, file, headers)
        span = parse_range(request.headers.get("Range"), stored.size)
        if span.partial:
            headers["Content-Range"] = f"bytes {span.start}-{span.end - 1}/{stored.size}"
        status = 206 if span.partial else 200
        if request.method == "HEAD":
            return web.Response(status=status, headers={**headers, "Content-Length": str(span.size)})
        exchange = current()
        if exchange and exchange.bends:
            return await _send_bent(
                request, file, span, web.StreamResponse(status=status, headers=headers), exchange
            )
        if span.size <= SMALL:
            file.seek(span.start)
            return web.Response(status=status, headers=headers, body=file.read(span.size))
        return await _send_file(request, file, span, web.StreamResponse(status=status, headers=headers))


def media_headers(stored: StoredObject, tag: str) -> dict[str, str]:
    """Return the headers that describe an object."""
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=0",
        "ETag": f'"{tag}"',
        "Last-Modified": http_date(stored.updated),
        "X-Goog-Generation": str(stored.generation),
        "X-Goog-Hash": hash_header(stored.crc32c, stored.md5),
        "X-Goog-Metageneration": str(stored.metageneration),
        "X-Goog-Storage-Class": stored.fields.get("storageClass", "STANDARD"),
        "X-Goog-Stored-Content-Encoding": stored.fields.get("contentEncoding") or "identity",
        "X-Goog-Stored-Content-Length": str(stored.size),
    }
    for name, header in FIELD_HEADERS.items():
        if stored.fields.get(name):
            headers[header] = stored.fields[name]
    for name, value in stored.fields.get("metadata", {}).items():
        if _is_header(name, value):
            headers[f"X-Goog-Meta-{name}"] = value
    return headers


def parse_range(header: str | None, size: int) -> Span:
    """Return what a Range header asks for; raises 416. Several ranges, or nonsense, mean the whole."""
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or found[0] == "bytes=-":
        return Span(0, size)
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= size or (first and last and int(last) < int(first)):
        raise GcsError(416, "The requested range cannot be satisfied.")
    return Span(start, end, partial=True)


def _wants_plain(request: web.Request, stored: StoredObject) -> bool:
    return (
        stored.fields.get("contentEncoding") == "gzip"
        and "gzip" not in request.headers.get("Accept-Encoding", "").lower()
        and "no-transform" not in stored.fields.get("cacheControl", "")
    )


async def _send_decompressed(
    request: web.Request, file: BinaryIO, headers: dict[str, str]
) -> web.StreamResponse:
    pieces = _decompressed(file)
    try:
        first = next(pieces, b"")
    except zlib.error as error:
        raise GcsError(503, "The object says contentEncoding gzip, but its bytes are not.") from error
    del headers["Content-Encoding"]
    headers |= {"Warning": "214 UploadServer gunzipped", "Vary": "Accept-Encoding"}
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    with _broken_off(request):
        await response.write(first)
        for piece in pieces:
            await response.write(piece)
        await response.write_eof()
    return response


async def _send_file(
    request: web.Request, file: BinaryIO, span: Span, response: web.StreamResponse
) -> web.StreamResponse:
    response.content_length = span.size
    writer = await response.prepare(request)
    transport = request.transport
    if writer is None or transport is None:
        raise ConnectionResetError("the client has gone")
    with _broken_off(request):
        if transport.get_extra_info("sslcontext") is None:
            writer.send_headers()
            await asyncio.get_running_loop().sendfile(transport, file, span.start, span.size)
        else:
            for piece in _pieces(file, span):
                await response.write(piece)
        await response.write_eof()
    return response


async def _send_bent(
    request: web.Request, file: BinaryIO, span: Span, response: web.StreamResponse, exchange: Exchange
) -> web.StreamResponse:
    """Send the bytes as the faults that were asked for want them."""
    await exchange.settle()
    response.content_length = span.size
    await response.prepare(request)
    with _broken_off(request, softly=True):
        async for piece in exchange.bent(_each(_pieces(file, span)), up=False):
            await response.write(piece)
        await response.write_eof()
    return response


async def _each(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@contextmanager
def _broken_off(request: web.Request, *, softly: bool = False) -> Iterator[None]:
    """Once the headers are out, the only way left to say that something failed is to cut the connection.

    With `softly` what has been sent arrives first.
    """
    try:
        yield
    except BaseException as error:
        if request.transport is not None and not (softly and request.transport.is_closing()):
            request.transport.abort()
        if isinstance(error, (OSError, zlib.error)):
            raise ConnectionResetError("the download was broken off") from error
        raise


def _pieces(file: BinaryIO, span: Span) -> Iterator[bytes]:
    file.seek(span.start)
    left = span.size
    while left and (piece := file.read(min(PIECE, left))):
        left -= len(piece)
        yield piece


def _decompressed(file: BinaryIO) -> Iterator[bytes]:
    unzip = zlib.decompressobj(wbits=31)
    while compressed := file.read(PIECE):
        while compressed:
            if unzip.eof:
                unzip = zlib.decompressobj(wbits=31)
            yield unzip.decompress(compressed, PIECE * 4)
            compressed = unzip.unconsumed_tail or unzip.unused_data


def _is_header(name: str, value: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum() and value.isprintable()
