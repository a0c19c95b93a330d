"""Reads the body of a multipart/related upload as a stream: first the metadata, then the bytes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from tpuctl.sim.gcs.errors import GcsError, invalid

LARGEST_HEAD = 1 << 20
"""Bytes of preamble, part headers or metadata, each."""

_BOUNDARY = re.compile(r"""boundary=(?:"([^"]+)"|'([^']+)'|([^;\s]+))""", re.IGNORECASE)


def boundary_of(content_type: str) -> bytes:
    """Return the boundary in a Content-Type; raises 400."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise invalid("Multipart content type has no boundary.")
    return next(boundary for boundary in match.groups() if boundary).encode("latin-1", "replace")


class MultipartRelated:
    """The two parts of an upload. Await `metadata()`, then `content_headers()`, then iterate `content()`.

    Lines may end in CRLF or, as gcsfs sends them, in LF; the first boundary line decides.
    """

    def __init__(self, chunks: AsyncIterator[bytes], boundary: bytes) -> None:
        self._chunks = chunks
        self._boundary = b"--" + boundary
        self._newline = b"\r\n"
        self._buffer = b""

    async def metadata(self) -> bytes:
        """Return the first part's body."""
        await self._until(self._boundary)
        self._newline = b"\r\n" if (await self._until(b"\n")).endswith(b"\r") else b"\n"
        await self._headers()
        body = await self._until(self._newline + self._boundary)
        await self._until(b"\n")
        return body

    async def content_headers(self) -> dict[str, str]:
        """Return the second part's headers, names in lower case."""
        return await self._headers()

    async def content(self) -> AsyncIterator[bytes]:
        """Return the second part's body as it arrives; raises 400 when the closing boundary is missing."""
        delimiter = self._newline + self._boundary
        while (end := self._buffer.find(delimiter)) < 0:
            safe = len(self._buffer) - len(delimiter) + 1
            if safe > 0:
                piece, self._buffer = self._buffer[:safe], self._buffer[safe:]
                yield piece
            await self._read()
        if end:
            yield self._buffer[:end]
        async for _ in self._chunks:  # the epilogue has no meaning
            pass

    async def _headers(self) -> dict[str, str]:
        headers = {}
        while line := (await self._until(self._newline)).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return headers

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > LARGEST_HEAD:
                raise GcsError(413, "The metadata of a multipart upload is too large.")
            await self._read()
        before, self._buffer = self._buffer[:end], self._buffer[end + len(mark) :]
        return before

    async def _read(self) -> None:
        try:
            self._buffer += await self._chunks.__anext__()
        except StopAsyncIteration:
            raise invalid("Multipart body ends without its closing boundary.") from None
