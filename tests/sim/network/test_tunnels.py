"""Who is behind a tunnel: roles are checked for the program at the far end of all tunnels."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sim.guards import guard_of
from tpuctl.sim.network import tunnels
from tpuctl.sim.network.tunnels import Address, Connections, FirstBytes, client_of, open_tunnel

PATIENCE = 60.0
IP_LOCAL_PORT_RANGE = 51
"""Linux's number of the option, which `socket` does not name: the lowest and the highest port."""


class Far:
    """A server that notes who is connected to it, and who is behind that."""

    def __init__(self) -> None:
        self.peer: Address = ("", 0)
        self.client: Address = ("", 0)
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer = writer.get_extra_info("peername")[:2]
        self.client = client_of(self.peer)
        try:
            writer.write(await reader.read(100))
            await reader.read()
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def doors(host: str, count: int, far: Far, folder: Path) -> AsyncIterator[Address]:
    """Tunnels to a server, each to the next; yields the address of the first, for a client that closes."""
    connections, loop = Connections(), asyncio.get_running_loop()
    servers = [await asyncio.start_server(far.serve, host, 0)]
    for _ in range(count):
        target = servers[-1].sockets[0].getsockname()[:2]

        async def decide(transport: asyncio.Transport, data: bytes, target: Address = target) -> None:
            await open_tunnel(transport, target, connections, guard_of(folder), to_server=data)

        servers.append(
            await loop.create_server(lambda decide=decide: FirstBytes(connections, bool, decide), host, 0)
        )
    yield servers[-1].sockets[0].getsockname()[:2]
    await connections.cut()
    for server in servers:
        server.close()
    await far.ended.wait()  # else its connection is left to a collection of garbage in any later test


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_client_is_known_through_tunnels_until_they_end(tmp_path: Path, host: str, count: int) -> None:
    if host == "::1":
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("this machine has no IPv6")
    far = Far()

    async def work() -> None:
        async with doors(host, count, far, tmp_path) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"hello")
            assert await reader.read(100) == b"hello"
            own = writer.get_extra_info("sockname")[:2]
            assert far.client == own
            assert (far.peer == own) == (count == 0)
            writer.close()
            while client_of(far.peer) != far.peer:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_two_clients_are_told_apart(tmp_path: Path) -> None:
    async def work() -> None:
        far, other = Far(), Far()
        async with (
            doors("127.0.0.1", 1, far, tmp_path) as first,
            doors("127.0.0.1", 1, other, tmp_path) as second,
        ):
            streams = [await asyncio.open_connection(*address) for address in (first, second)]
            for reader, writer in streams:
                writer.write(b"hello")
                assert await reader.read(100) == b"hello"
            assert [far.client, other.client] == [writer.get_extra_info("sockname") for _, writer in streams]
            for _, writer in streams:
                writer.close()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_no_client_gets_the_port_of_a_tunnel(tmp_path: Path) -> None:
    """Or it would be taken for the tunnel, or the tunnel for itself: nobody would be behind it."""
    far = Far()

    async def work() -> None:
        async with doors("127.0.0.1", 1, far, tmp_path) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"hello")
            assert await reader.read(100) == b"hello"
            with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as client:
                only_port(client, far.peer[1])
                with pytest.raises(OSError, match="assign"):
                    client.connect(other.getsockname())
            writer.close()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_an_address_that_leads_to_itself_is_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ("127.0.0.1", 1), ("127.0.0.1", 2)
    monkeypatch.setattr(tunnels, "_clients", {first: first})
    assert client_of(first) == first
    monkeypatch.setattr(tunnels, "_clients", {first: second, second: first})
    assert client_of(first) == first


def only_port(client: socket.socket, port: int) -> None:
    """Let the system choose this port alone for a client, as it might by chance."""
    try:
        client.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=HH", port, port))
    except OSError:
        pytest.skip("this system cannot narrow the ports of one socket: Linux 6.3 or later can")
