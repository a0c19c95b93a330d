"""Serves the relay of Identity-Aware Proxy, `wss://tunnel.cloudproxy.app/v4`: opens and resumes tunnels."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tpuctl.sim.access.web_pages import TUNNELLER
from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.faults.bandwidth import BandwidthLimits
from tpuctl.sim.faults.resets import reset
from tpuctl.sim.iam.access import current_caller
from tpuctl.sim.iap import close_codes, frames
from tpuctl.sim.iap.close_codes import Closing
from tpuctl.sim.iap.faults import TunnelFaults
from tpuctl.sim.iap.targets import Targets, target_of
from tpuctl.sim.iap.tunnel import Tunnel
from tpuctl.sim.records import Host

SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
BEARER = "bearer "

RESUMABLE = 600.0
"""Seconds for which a tunnel that has lost its client can be resumed; Google's own are not known."""
CLOSE_TIMEOUT = 1.0
"""Seconds for which a client may answer that it has seen the relay's close."""
LARGEST_MESSAGE = 1 << 20


class Relay:
    """The tunnels of one simulator."""

    def __init__(self, targets: Targets, registry: FaultRegistry, events: Events) -> None:
        self._targets = targets
        self._registry = registry
        self._limits = BandwidthLimits()
        self._events = events
        self._tunnels: dict[str, Tunnel] = {}
        self._sockets: set[web.WebSocketResponse] = set()
        self._expiring: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def application(self) -> web.Application:
        """Return the application that answers."""
        application = web.Application()
        application.router.add_get("/v4/connect", self._connect)
        application.router.add_get("/v4/reconnect", self._reconnect)
        application.on_shutdown.append(self._shut_down)
        return application

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        _check_client(request)
        target = target_of(request.query)
        self._events.note("request", "connect", target.name, f"port {target.port}", service="iap")
        host = self._targets.find(target)
        async with self._accepted(request, host) as (socket, faults):
            await faults.open()
            self._targets.authorize(target)
            streams = await self._targets.open(host, target.port)
            assert host is not None
            tunnel = Tunnel(*streams, host, _member())
            self._tunnels[tunnel.session] = tunnel
            await socket.send_bytes(frames.connected(tunnel.session))
            await self._serve(tunnel, socket, faults)
        return socket

    async def _reconnect(self, request: web.Request) -> web.StreamResponse:
        _check_client(request)
        session, position = request.query.get("sid", ""), request.query.get("ack", "")
        if not position.isascii() or not position.isdecimal():
            raise web.HTTPBadRequest(text="ack has to be a number of bytes.")
        self._events.note("request", "reconnect", session[:8], f"ack {position}", service="iap")
        tunnel = self._tunnels.get(session)
        async with self._accepted(request, tunnel.host if tunnel else None) as (socket, faults):
            await faults.open()
            if tunnel is None or tunnel.owner != _member():
                raise Closing(close_codes.SESSION_UNKNOWN)
            tunnel.rewind(int(position))
            self._stop_timer(tunnel)
            await socket.send_bytes(frames.reconnected(tunnel.received))
            await self._serve(tunnel, socket, faults)
        return socket

    @asynccontextmanager
    async def _accepted(
        self, request: web.Request, host: Host | None
    ) -> AsyncIterator[tuple[web.WebSocketResponse, TunnelFaults]]:
        """Accept a WebSocket, and close it with the code of a Closing that is raised inside."""
        faults = TunnelFaults(self._registry, self._limits, request, host)
        faults.refuse()
        socket = web.WebSocketResponse(
            timeout=CLOSE_TIMEOUT, protocols=(SUBPROTOCOL,), compress=False, max_msg_size=LARGEST_MESSAGE
        )
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            yield socket, faults
        except Closing as closing:
            if closing.code:
                await socket.close(code=closing.code, message=closing.reason.encode())
            else:
                reset(request.transport)
        finally:
            self._sockets.discard(socket)

    async def _serve(self, tunnel: Tunnel, socket: web.WebSocketResponse, faults: TunnelFaults) -> None:
        """Carry bytes; a tunnel whose client is lost waits for it, any other ends."""
        resumable = False
        try:
            resumable = not await tunnel.serve(socket, faults)
        except Closing as closing:
            resumable = closing.resumable
            raise
        finally:
            if resumable:
                self._keep(tunnel)
            else:
                await self._end(tunnel)

    def _keep(self, tunnel: Tunnel) -> None:
        """Have a tunnel end after a while without a client."""
        self._stop_timer(tunnel)
        loop = asyncio.get_running_loop()
        self._expiring[tunnel.session] = loop.call_later(RESUMABLE, self._expire, tunnel)

    def _stop_timer(self, tunnel: Tunnel) -> None:
        timer = self._expiring.pop(tunnel.session, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, tunnel: Tunnel) -> None:
        if tunnel.in_use:  # another WebSocket has taken it over
            return
        task = asyncio.ensure_future(self._end(tunnel))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, tunnel: Tunnel) -> None:
        self._stop_timer(tunnel)
        self._tunnels.pop(tunnel.session, None)
        await tunnel.close()

    async def _shut_down(self, _: web.Application) -> None:
        closing = [socket.close(code=1001, drain=False) for socket in self._sockets]
        await asyncio.gather(*closing, return_exceptions=True)
        for tunnel in list(self._tunnels.values()):
            await self._end(tunnel)


def _check_client(request: web.Request) -> None:
    """Raise the HTTP error of a request that is none of a client of the relay."""
    if request.headers.get("Origin") != TUNNELLER:
        raise web.HTTPForbidden(text=f"The Origin has to be {TUNNELLER}.")
    if SUBPROTOCOL not in re.split(r"[,\s]+", request.headers.get("Sec-WebSocket-Protocol", "")):
        raise web.HTTPBadRequest(text=f"The subprotocol has to be {SUBPROTOCOL}.")
    authorization = request.headers.get("Authorization", "")
    if not authorization.lower().startswith(BEARER) or not authorization[len(BEARER) :].strip():
        raise web.HTTPUnauthorized(text="The request has no access token.")


def _member() -> str:
    caller = current_caller()
    return caller.member if caller else ""
