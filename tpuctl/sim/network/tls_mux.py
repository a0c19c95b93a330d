"""The TLS port of an API that speaks gRPC and REST under one name: the first bytes say which it is."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from tpuctl.sim.network.ports import LOOPBACK

HTTP2 = b"PRI"
"""How a client begins that speaks HTTP/2, as gRPC does (RFC 9113, section 3.4)."""
PROTOCOLS = ["http/1.1", "h2"]
"""For ALPN, the better first: a client that offers both, such as curl, wants REST."""
CHUNK = 64 << 10
HANDSHAKE_TIMEOUT = 20.0


class TlsMux:
    """Ends TLS with `context` and passes each connection on to the port of its protocol.

    Those that come before `open` has told the ports wait for it.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        context.set_alpn_protocols(PROTOCOLS)
        self._context = context
        self._grpc = self._rest = 0
        self._opened = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.start_server(
            self._accept, LOOPBACK, 0, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
        )
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address[1]

    def open(self, *, grpc: int, rest: int) -> None:
        """Let connections through, to these ports of loopback."""
        self._grpc, self._rest = grpc, rest
        self._opened.set()

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with _closing(writer):
                first = await reader.readexactly(len(HTTP2))
                await self._opened.wait()
                port = self._grpc if first == HTTP2 else self._rest
                upstream, to_upstream = await asyncio.open_connection(LOOPBACK, port)
                async with _closing(to_upstream):
                    to_upstream.write(first)
                    await _either(_copy(reader, to_upstream), _copy(upstream, writer))
        except (OSError, asyncio.IncompleteReadError):  # one side has gone
            pass


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection once all is written; cut it on an error, which a cancel is, too."""
    try:
        yield
        writer.close()
        await writer.wait_closed()
    except BaseException:
        writer.transport.abort()
        raise


async def _either(*directions: Coroutine[None, None, None]) -> None:
    """Run both until one has ended."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK):
        target.write(data)
        await target.drain()
