"""Adapts streams to Google's client: a file object to upload an iterator from, and one to read an object."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ChunkStream(io.RawIOBase):
    """An iterator of bytes as the file object that the client reads; forward only."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest: bytes | memoryview = b""
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return exactly `size` bytes, fewer only at the end: the client takes a short read for the end."""
        parts: list[bytes | memoryview] = [self._rest]
        available = len(self._rest)
        while size < 0 or available < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            available += len(chunk)
        self._rest = b""
        if 0 <= size < available:
            last = memoryview(parts.pop())
            split = len(last) - (available - size)
            parts.append(last[:split])
            self._rest = last[split:]
        data = b"".join(parts)
        self._position += len(data)
        return data


class BufferFullError(Exception):
    """More bytes came than the reader takes."""


class BoundedBuffer(io.BytesIO):
    """Bytes in memory up to a limit; a write beyond it raises BufferFullError, which ends a download."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Buffer, /) -> int:
        if self.tell() + memoryview(data).nbytes > self._most:
            raise BufferFullError
        return super().write(data)


class ObjectStream:
    """An object's bytes, fetched a range at a time; `read` returns fewer than `size` only at the end."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, part: int) -> None:
        """`fetch(start, end)` returns the bytes from `start` to before `end`."""
        self._fetch = fetch
        self._size = size
        self._part = part
        self._fetched = 0
        self._held = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        parts: list[memoryview] = []
        while size > 0 and (self._held or self._refill()):
            parts.append(self._held[:size])
            size -= len(parts[-1])
            self._held = self._held[len(parts[-1]) :]
        return b"".join(parts)

    def _refill(self) -> bool:
        end = min(self._fetched + self._part, self._size)
        if end > self._fetched:
            self._held = memoryview(self._fetch(self._fetched, end))
            self._fetched = end
        return bool(self._held)
