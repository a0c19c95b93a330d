"""Forwards a connection: the client's first bytes decide where to.

- Chooses the ports of the simulator's servers: the same after a restart, so that clients find them.
- Starts the simulator's HTTP servers, each on its loopback port of before a restart, if that is free.
"""

from __future__ import annotations

import asyncio
import errno
import json
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from aiohttp import web, web_app

from tpuctl.sim.access import Guard, json_bodies
from tpuctl.sim.json_values import JsonObject, parse_object
from tpuctl.sim.state import write_private

LOOPBACK = "127.0.0.1"

CANDIDATES = range(20_000, 30_000)
"""New ports are taken from these: below those that Linux (from 32768) and macOS (from 49152) give to clients,
of which any may be in use at the moment of a restart."""
TRIES = 50

Listener = TypeVar("Listener", bound=socket.socket)


class Ports:
    """A port for each server by name, in a JSON file: the one it had before, where that is free."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports = _load(path)
        self._saved = dict(self._ports)

    def listen(self, name: str, bind: Callable[[int], Listener]) -> Listener:
        """Return the socket that `bind` makes for the first free candidate; raises OSError."""
        for port in self.candidates(name):
            try:
                listener = bind(port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and port:
                    continue
                raise
            self.note(name, listener.getsockname()[1])
            return listener
        raise AssertionError("port 0 is a free one")

    async def start(self, name: str, start: Callable[[int], Awaitable[int]]) -> int:
        """Start a server that binds by itself: `start` takes a port and returns the real one."""
        for port in self.candidates(name):
            try:
                self.note(name, await start(port))
            except (OSError, RuntimeError):  # gRPC raises RuntimeError for a port in use
                if not port:
                    raise
            else:
                break
        return self.port(name)

    def candidates(self, name: str) -> Iterator[int]:
        """Yield the ports to try for a server, best first; the last is 0, the system's choice."""
        if name in self._ports:
            yield self._ports[name]
        for _ in range(TRIES):
            yield random.choice(CANDIDATES)  # noqa: S311  no secret
        yield 0

    def known(self, name: str) -> bool:
        """Return whether this server has had a port."""
        return name in self._ports

    def port(self, name: str) -> int:
        """Return the port that this server had last; raises KeyError."""
        return self._ports[name]

    def note(self, name: str, port: int) -> None:
        """Remember where a server listens."""
        self._ports[name] = port

    def forget(self, name: str) -> None:
        """Forget a server that will not come back."""
        self._ports.pop(name, None)

    def save(self) -> None:
        """Write the file, if there are changes."""
        if self._ports != self._saved:
            write_private(self._path, json.dumps(self._ports, indent=1).encode())
            self._saved = dict(self._ports)


def _load(path: Path) -> dict[str, int]:
    try:
        ports: dict[str, int] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return ports


def bound(address: str, port: int) -> socket.socket:
    """Return a socket that listens, for a server that takes one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


CONNECT_TIMEOUT = 20.0
"""Seconds to reach the server at the other end of a tunnel."""
LOOPBACKS = ("127.0.0.1", "::1")

Address = tuple[str, int]
_clients: dict[Address, Address] = {}
"""Own end of the connection that a tunnel of this process makes -> the address of the tunnel's client."""


def client_of(address: Address) -> Address:
    """Return who is behind an address that connects to a server of this process, through any tunnels."""
    passed = set()
    while address in _clients and address not in passed:
        passed.add(address)
        address = _clients[address]
    return address


class Connections:
    """The open connections of one server, and the tasks that decide about new ones; `cut` ends them all."""

    def __init__(self) -> None:
        self._transports: set[asyncio.Transport] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Transport]:
        return iter(list(self._transports))

    def add(self, transport: asyncio.Transport) -> None:
        """Remember an open connection."""
        self._transports.add(transport)

    def discard(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended, or that another server has taken over."""
        self._transports.discard(transport)

    def decide(self, transport: asyncio.Transport, decision: Coroutine[None, None, None]) -> None:
        """Run `decision` for a new connection, which is cut when it raises or is cancelled."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() or task.exception() is not None:
                transport.abort()

        task = asyncio.get_running_loop().create_task(decision)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def cut(self) -> None:
        """Cancel the decisions that are open and cut every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in self:
            transport.abort()
        await asyncio.sleep(0)  # lets the transports close their sockets


class FirstBytes(asyncio.Protocol):
    """Reads from a new client until `complete`, then pauses it and hands it to `decide`."""

    def __init__(
        self,
        connections: Connections,
        complete: Callable[[bytes], bool],
        decide: Callable[[asyncio.Transport, bytes], Coroutine[None, None, None]],
    ) -> None:
        self._connections = connections
        self._complete = complete
        self._decide = decide
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self._transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._complete(self._data):
            self._transport.pause_reading()
            self._connections.decide(self._transport, self._decide(self._transport, self._data))

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self._transport)


async def open_tunnel(
    client: asyncio.Transport,
    address: tuple[str, int],
    connections: Connections,
    guard: Guard,
    *,
    to_client: bytes = b"",
    to_server: bytes = b"",
) -> None:
    """Connect a paused client to a server, and pump bytes both ways until either end closes.

    `to_client` and `to_server` are sent before anything else. `guard` has admitted the client; another door
    of the simulator at the far end then admits the tunnel. Raises OSError or TimeoutError when the server
    cannot be reached.
    """
    loop = asyncio.get_running_loop()
    # a port that is bound is nobody else's; else the system gives it to a client of another server, too
    own_end = (address[0], 0) if address[0] in LOOPBACKS else None
    connecting = loop.create_connection(
        lambda: _Pump(client, connections, greeting=to_client), *address, local_addr=own_end
    )
    server, _ = await asyncio.wait_for(connecting, CONNECT_TIMEOUT)
    if client.is_closing():
        server.abort()
        return
    guard.add_hop(server)
    server.write(to_server)
    client.set_protocol(_Pump(server, connections, client))
    client.resume_reading()


class _Pump(asyncio.Protocol):
    """One end of a tunnel: what arrives here goes to `peer`, no faster than the peer takes it."""

    def __init__(
        self,
        peer: asyncio.Transport,
        connections: Connections,
        transport: asyncio.Transport | None = None,
        greeting: bytes = b"",
    ) -> None:
        self._peer = peer
        self._connections = connections
        self._transport = transport
        self._greeting = greeting
        self._own_end: Address | None = None
        self._has_ended = False
        """Whether nothing more arrives here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        own_end, client = transport.get_extra_info("sockname"), self._peer.get_extra_info("peername")
        if own_end and client:
            self._own_end = own_end[:2]
            _clients[own_end[:2]] = client[:2]
        self._connections.add(self._transport)
        if self._greeting:
            self._peer.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def eof_received(self) -> bool:
        """Close one direction where both ends can do that; the connection ends under TLS, and after both."""
        assert self._transport is not None
        self._has_ended = True
        other = self._peer.get_protocol()
        if isinstance(other, _Pump) and other._has_ended:
            return False
        if not (self._transport.can_write_eof() and self._peer.can_write_eof()):
            return False
        if not self._peer.is_closing():
            self._peer.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._peer.close()
        if self._own_end is not None:
            _clients.pop(self._own_end, None)
        if self._transport is not None:
            self._connections.discard(self._transport)

    def pause_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()


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
