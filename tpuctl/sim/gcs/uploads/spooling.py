"""Writing a request's body to disk: hashing and file writes in a thread, memory flat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import StreamReader

from tpuctl.sim.gcs.storage.blobs import BlobWriter

BLOCK = 2 << 20
"""Bytes that are handed to the threads at a time."""

SMALL = 64 << 10
"""Bytes that are hashed and written sooner than a thread is reached."""


async def arriving(content: StreamReader) -> AsyncIterator[bytes]:
    """Yield a request's body as it comes, all of it also when the client has gone as soon as it was sent."""
    try:
        while not content.at_eof():
            chunk, _ = await content.readchunk()  # readany() would join what has come in
            if chunk:
                yield chunk
    except ConnectionError:
        # aiohttp no longer hands out what had arrived before the connection was lost
        rest, offset = b"".join(content._buffer), content._buffer_offset
        yield rest[offset:]
        if not content.is_eof():
            raise


async def spool(chunks: AsyncIterator[bytes], writer: BlobWriter) -> None:
    """Append all chunks; when the source fails midway, what came before it is written all the same."""
    spooler = _Spooler(writer)
    try:
        async for chunk in chunks:
            await spooler.add(chunk)
    finally:
        await spooler.flush()


class _Spooler:
    """Gathers chunks into blocks, and writes and hashes one block in two threads while the next comes in."""

    def __init__(self, writer: BlobWriter) -> None:
        self._writer = writer
        self._waiting: list[bytes] = []
        self._size = 0
        self._under_way: asyncio.Future[Any] | None = None

    async def add(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._size += len(chunk)
        if self._size >= BLOCK:
            await self._settle()
            chunks = self._take()
            self._under_way = asyncio.gather(
                asyncio.to_thread(self._writer.store, chunks), asyncio.to_thread(self._writer.digest, chunks)
            )

    async def flush(self) -> None:
        await self._settle()
        if self._size <= SMALL:
            self._writer.write(self._take())
        else:
            await asyncio.to_thread(self._writer.write, self._take())

    async def _settle(self) -> None:
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            await under_way

    def _take(self) -> list[bytes]:
        taken, self._waiting, self._size = self._waiting, [], 0
        return taken
