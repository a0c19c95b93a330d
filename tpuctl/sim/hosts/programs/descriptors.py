"""Reads and writes raw file descriptors (pipes, terminals, pidfds) without blocking the event loop."""

from __future__ import annotations

import asyncio
import errno
import os

CHUNK = 64 * 1024


async def readable(descriptor: int) -> None:
    """Wait until `descriptor` has something to read, or its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    """Wait until `descriptor` takes more data, or its reader is gone."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def read(descriptor: int) -> bytes:
    """Return the next bytes of the non-blocking `descriptor`, waiting for the first; empty at the end."""
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            await readable(descriptor)
        except OSError as error:
            if error.errno == errno.EIO:  # on Linux: the last program on the terminal has ended
                return b""
            raise


async def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`; raises BrokenPipeError when the reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            await writable(descriptor)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
