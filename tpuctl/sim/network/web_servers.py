"""Starts the simulator's HTTP servers, each on its loopback port of before a restart, if that is free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web, web_app

from tpuctl.sim.access.content_types import json_bodies
from tpuctl.sim.access.guard import Guard
from tpuctl.sim.json_values import JsonObject, parse_object
from tpuctl.sim.network.ports import LOOPBACK, Ports, bound

BACKLOG = 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServers:
    """Serves applications by name, each behind `guard`.

    Awaits `on_request(name, request)` before each request that it admits is handled.
    """

    def __init__(
        self, ports: Ports, guard: Guard, on_request: Callable[[str, web.Request], Awaitable[None]]
    ) -> None:
        self._ports = ports
        self._guard = guard
        self._on_request = on_request
        self._runners: dict[str, web.AppRunner] = {}

    async def start(self, name: str, runner: web.AppRunner, *, only_json: bool = True) -> str:
        """Serve the application of a new runner, whose requests have JSON bodies alone; returns its URL."""

        @web.middleware
        async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
            await self._on_request(name, request)
            return await handler(request)

        runner.app.middlewares.append(watch)
        first = [self._guard.middleware, *([json_bodies] if only_json else [])]
        runner.app.middlewares[:0] = first  # before the application's own
        self._runners[name] = runner
        await runner.setup()
        listener = self._ports.listen(name, partial(bound, LOOPBACK))
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
        return f"http://{LOOPBACK}:{self._ports.port(name)}"

    def protocol(self, name: str) -> Callable[[], asyncio.Protocol]:
        """Return what makes the HTTP protocol for a connection to one of the servers."""
        server = self._runners[name].server
        assert server is not None, "it has been started"
        return server

    def connections(self) -> list[asyncio.BaseTransport | None]:
        """Return the connections that are open."""
        servers = [runner.server for runner in self._runners.values() if runner.server]
        return [connection.transport for server in servers for connection in server.connections]

    async def close(self) -> None:
        """Stop all of them."""
        for runner in self._runners.values():
            await runner.cleanup()
        _forget_handlers()


def _forget_handlers() -> None:
    """Let go of all that the handlers of closed servers hold: aiohttp keeps 1,024 of a process for ever.

    Source: `_cached_build_middleware` in aiohttp/web_app.py; servers that still run fill it again.
    """
    cached = getattr(web_app, "_cached_build_middleware", None)
    if cached is not None:
        cached.cache_clear()


async def sent_json(request: web.Request) -> JsonObject | None:
    """Return the JSON object in a request's body; None for anything else, which the server refuses."""
    try:
        return parse_object(await request.read()) if request.can_read_body else None
    except ValueError:
        return None
