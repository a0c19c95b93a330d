"""Forwards a connection: the client's first bytes decide where to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import cast

from tpuctl.sim.access.guard import Guard

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
