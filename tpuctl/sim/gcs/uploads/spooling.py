"""Writes the body of an upload to a blob: files and hashes in threads, constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import StreamReader

from tpuctl.sim.gcs.storage.blobs import BlobWriter

BLOCK = 2 << 20
"""Bytes that are passed to the threads at a time."""

SMALL = 64 << 10
"""Bytes that are written and hashed faster than a thread starts."""


async def body_chunks(content: StreamReader) -> AsyncIterator[bytes]:
    """Yield a request's body as it arrives, all of it also if the client disconnects after sending it."""
    try:
        while not content.at_eof():
            chunk, _ = await content.readchunk()  # readany() would join the chunks that have arrived
            if chunk:
                yield chunk
    except ConnectionError:
        # aiohttp does not return the bytes that arrived before the connection was lost
        rest, offset = b"".join(content._buffer), content._buffer_offset
        yield rest[offset:]
        if not content.is_eof():
            raise


async def spool(chunks: AsyncIterator[bytes], writer: BlobWriter) -> None:
    """Append all chunks; if the source fails midway, the chunks before are written anyway."""
    spooler = _Spooler(writer)
    try:
        async for chunk in chunks:
            await spooler.add(chunk)
    finally:
        await spooler.flush()


class _Spooler:
    """Collects chunks into blocks; two threads write and hash one block while the next arrives."""

    def __init__(self, writer: BlobWriter) -> None:
        self._writer = writer
        self._chunks: list[bytes] = []
        self._size = 0
        self._writing: asyncio.Future[tuple[None, None]] | None = None

    async def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size >= BLOCK:
            await self._wait()
            block = self._take_block()
            self._writing = asyncio.gather(
                asyncio.to_thread(self._writer.store, block), asyncio.to_thread(self._writer.digest, block)
            )

    async def flush(self) -> None:
        await self._wait()
        if self._size <= SMALL:
            self._writer.write(self._take_block())
        else:
            await asyncio.to_thread(self._writer.write, self._take_block())

    async def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing

    def _take_block(self) -> list[bytes]:
        block, self._chunks, self._size = self._chunks, [], 0
        return block
