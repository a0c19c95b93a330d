"""Starts the servers of the Cloud TPU API: gRPC and REST on ports of their own, and both on one TLS port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
from aiohttp import web

from tpuctl.sim.access import FOREIGN, Address, Guard, plain
from tpuctl.sim.network.tunnels import LOOPBACK, Connections, FirstBytes, Ports, WebServers, open_tunnel
from tpuctl.sim.tpu import grpc_api, rest_api
from tpuctl.sim.world import World

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


Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class GrpcGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Refuses the calls that `guard` does not admit; calls `on_call` before each of the others.

    `server` is the address that the gRPC server listens on. gRPC shows a connection only to its calls, so the
    system is asked at each one. Web pages cannot speak gRPC: their fetch uses HTTP/2 under TLS alone.
    """

    def __init__(self, guard: Guard, server: Callable[[], Address], on_call: Callable[[], None]) -> None:
        self._guard = guard
        self._server = server
        self._on_call = on_call

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the call's handler behind the guard; raises TypeError for a streaming one, which is not."""
        handler: Handler | None = await continuation(handler_call_details)  # None: an unknown method
        if handler is None:
            return handler  # type: ignore[return-value]  # the stubs know no unknown methods
        answer = handler.unary_unary
        if answer is None:
            raise TypeError(f"{handler_call_details.method} streams, and would have no guard")

        async def guarded(request: Any, context: Any) -> Any:
            if not self._admits(context):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"The call is refused: {FOREIGN}.")
            self._on_call()
            return await answer(request, context)

        return grpc.unary_unary_rpc_method_handler(
            guarded, handler.request_deserializer, handler.response_serializer
        )

    def _admits(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        client = _address(context.peer())
        if client is not None and self._guard.trusts_address(client, self._server()):
            return True
        metadata = dict(context.invocation_metadata() or ())
        return self._guard.secret.allows(str(metadata.get("authorization", "")))


def _address(peer: str) -> Address | None:
    """Read gRPC's name of the other end: `ipv4:127.0.0.1:1234` or, escaped, `ipv6:[::1]:1234`."""
    _, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    try:
        return plain((host.strip("[]"), int(port)))
    except ValueError:
        return None


GRPC_OPTIONS = [("grpc.so_reuseport", 0)]
"""Else gRPC would share a port with another simulator."""
GRACE = 0.5
"""Seconds that calls under way may still take when the server stops."""


class TpuServers:
    """gRPC, REST and TLS behind `guard`; each call that it admits is noted by `on_call`, then by `enter`."""

    def __init__(
        self,
        ports: Ports,
        web_servers: WebServers,
        tls: ssl.SSLContext,
        guard: Guard,
        on_call: Callable[[], None],
        enter: grpc_api.Enter,
    ) -> None:
        self._enter = enter
        self._ports = ports
        self._web_servers = web_servers
        door = GrpcGuard(guard, lambda: (LOOPBACK, ports.port("tpu_grpc")), on_call)
        self._grpc = grpc.aio.server(interceptors=[door], options=GRPC_OPTIONS)
        self._mux = TlsMux(tls, guard)

    async def listen(self) -> int:
        """Listen on the TLS port and return it; connections wait there until `serve`."""
        return await self._mux.start()

    async def serve(self, world: World) -> tuple[str, str]:
        """Answer for `world`; returns the address of the gRPC server and the URL of the REST server."""
        runner = web.AppRunner(rest_api.application(world), access_log=None)
        rest = await self._web_servers.start("tpu_rest", runner)
        self._grpc.add_generic_rpc_handlers(tuple(grpc_api.handlers(world, self._enter)))
        port = await self._ports.start("tpu_grpc", self._bind_grpc)
        await self._grpc.start()
        self._mux.forward_to(grpc=port, rest=self._ports.port("tpu_rest"))
        return f"{LOOPBACK}:{port}", rest

    async def stop_calls(self) -> None:
        """Stop the gRPC server; REST is closed with the web servers."""
        await self._grpc.stop(GRACE)

    async def close(self) -> None:
        """Close the TLS port."""
        await self._mux.close()

    async def _bind_grpc(self, port: int) -> int:
        bound_port: int = self._grpc.add_insecure_port(f"{LOOPBACK}:{port}")
        return bound_port
