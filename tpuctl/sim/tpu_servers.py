"""Starts the servers of the Cloud TPU API: gRPC and REST on ports of their own, and both on one TLS port."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import grpc
from aiohttp import web

from tpuctl.sim.access.grpc_guard import GrpcGuard
from tpuctl.sim.access.guard import Guard
from tpuctl.sim.network.ports import LOOPBACK, Ports
from tpuctl.sim.network.tls_mux import TlsMux
from tpuctl.sim.network.web_servers import WebServers
from tpuctl.sim.tpu import grpc_api, rest_api
from tpuctl.sim.world import World

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
