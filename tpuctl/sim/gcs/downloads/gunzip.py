"""Decompressive transcoding of gzip objects, https://cloud.google.com/storage/docs/transcoding."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from aiohttp import web

from tpuctl.sim.gcs.downloads.byte_range import PIECE
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.stored_object import StoredObject


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
