"""Serves gRPC and REST of an API on one TLS port: a client's first bytes decide."""

from __future__ import annotations

import asyncio
import ssl

from tpuctl.sim.access.guard import Guard
from tpuctl.sim.network.ports import LOOPBACK
from tpuctl.sim.network.tunnels import Connections, FirstBytes, open_tunnel

HTTP2 = b"PRI"
"""How a client begins that speaks HTTP/2, as gRPC does (RFC 9113, section 3.4)."""
PROTOCOLS = ["http/1.1", "h2"]
"""For ALPN, the preferred one first: a client that offers both, such as curl, wants REST."""
HANDSHAKE_TIMEOUT = 20.0


class TlsMux:
    """Ends TLS with `context` and tunnels each connection to the port of its protocol.

    Connections from before `forward_to` wait for it. What `guard` does not trust is cut: the servers behind
    see connections of the simulator itself.
    """

    def __init__(self, context: ssl.SSLContext, guard: Guard) -> None:
        context.set_alpn_protocols(PROTOCOLS)
        self._context = context
        self._guard = guard
        self._grpc = self._rest = 0
        self._forwarding = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections = Connections()

    async def start(self) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: FirstBytes(self._connections, lambda data: len(data) >= len(HTTP2), self._forward),
            LOOPBACK,
            0,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
        )
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address[1]

    def forward_to(self, *, grpc: int, rest: int) -> None:
        """Tunnel connections to these ports of loopback."""
        self._grpc, self._rest = grpc, rest
        self._forwarding.set()

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is None:
            return
        self._server.close()
        await self._connections.cut()
        await self._server.wait_closed()

    async def _forward(self, client: asyncio.Transport, first: bytes) -> None:
        if not self._guard.trusts(client):
            client.abort()
            return
        await self._forwarding.wait()
        port = self._grpc if first.startswith(HTTP2) else self._rest
        await open_tunnel(client, (LOOPBACK, port), self._connections, self._guard, to_server=first)
