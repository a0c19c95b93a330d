"""The ends of a tunnel on connections that the test plays: bytes, pauses, half-closed and lost ones.

Who is behind a tunnel: roles are checked for the program at the far end of all tunnels.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sim.guards import guard_of
from tpuctl.sim.network import tunnels
from tpuctl.sim.network.tunnels import Address, Connections, FirstBytes, client_of, open_tunnel

CLIENT, DOOR, OWN, FAR = (("127.0.0.1", port) for port in (1, 2, 3, 4))


class Transport(asyncio.Transport):
    """A connection that records what is done with it."""

    def __init__(self, own: object = OWN, peer: object = FAR, *, half: bool = True) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self.half = half
        self.calls: list[object] = []
        self.closing = False
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()

    def write(self, data: Any) -> None:
        self.calls.append(data)

    def write_eof(self) -> None:
        self.calls.append("eof")

    def can_write_eof(self) -> bool:
        return self.half

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


class Tunnel:
    """Both ends of a tunnel: the client's connection to its door, and that to the server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, half: bool = True) -> None:
        self.connections = Connections()
        self.client = Transport(DOOR, CLIENT, half=half)
        self.server = Transport(half=half)
        self.hops: list[object] = []
        self.asked: list[tuple[object, ...]] = []
        self.monkeypatch = monkeypatch

    async def open(self, address: tuple[str, int] = FAR, **options: bytes) -> None:
        """Open the tunnel; the connection to the server is made at once."""

        async def create_connection(
            factory: Callable[[], asyncio.Protocol], host: str, port: int, *, local_addr: object
        ) -> tuple[asyncio.Transport, asyncio.Protocol]:
            self.asked.append((host, port, local_addr))
            protocol = factory()
            self.server.set_protocol(protocol)
            protocol.connection_made(self.server)
            return self.server, protocol

        guard: Any = self
        self.monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        await open_tunnel(self.client, address, self.connections, guard, **options)

    def add_hop(self, transport: object) -> None:
        """Stand for the guard."""
        self.hops.append(transport)

    @property
    def ends(self) -> tuple[Any, Any]:
        return self.client.protocol, self.server.protocol


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


def test_a_tunnel_passes_what_comes_at_either_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        tunnel = Tunnel(monkeypatch)
        await tunnel.open(to_client=b"200", to_server=b"first")
        assert tunnel.hops == [tunnel.server]
        assert (tunnel.client.calls, tunnel.server.calls) == ([b"200", "resume"], [b"first"])
        client, server = tunnel.ends
        client.data_received(b"up")
        server.data_received(b"down")
        assert (tunnel.client.calls[2:], tunnel.server.calls[1:]) == ([b"down"], [b"up"])

    play(story)


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", ("127.0.0.1", 0)), ("::1", ("::1", 0)), ("127.77.0.1", None), ("10.0.0.1", None)],
)
def test_a_connection_on_loopback_has_a_port_of_its_own(
    monkeypatch: pytest.MonkeyPatch, host: str, own: object
) -> None:
    async def story() -> None:
        tunnel = Tunnel(monkeypatch)
        await tunnel.open((host, 7))
        assert tunnel.asked == [(host, 7, own)]

    play(story)


def test_a_tunnel_whose_client_has_gone_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        tunnel = Tunnel(monkeypatch)
        tunnel.client.closing = True
        await tunnel.open(to_server=b"first")
        assert (tunnel.server.calls, tunnel.hops) == (["abort"], [])

    play(story)


def test_the_client_is_known_as_long_as_the_connection_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        tunnel = Tunnel(monkeypatch)
        await tunnel.open()
        assert (client_of(OWN), list(tunnel.connections)) == (CLIENT, [tunnel.server])
        tunnel.ends[1].connection_lost(None)
        assert (client_of(OWN), list(tunnel.connections)) == (OWN, [])
        assert tunnel.client.calls[-1] == "close"

    play(story)


@pytest.mark.parametrize(("own", "peer"), [(None, CLIENT), (OWN, None)])
def test_a_connection_without_a_name_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, own: object, peer: object
) -> None:
    async def story() -> None:
        monkeypatch.setattr(tunnels, "_clients", {})
        tunnel = Tunnel(monkeypatch)
        tunnel.client, tunnel.server = Transport(DOOR, peer), Transport(own)
        await tunnel.open()
        assert tunnels._clients == {}
        tunnel.ends[1].connection_lost(None)
        assert tunnel.client.calls[-1] == "close"

    play(story)


def test_an_end_that_closes_one_direction_keeps_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        tunnel = Tunnel(monkeypatch)
        await tunnel.open()
        client, server = tunnel.ends
        assert client.eof_received() is True
        assert tunnel.server.calls[-1] == "eof"
        server.data_received(b"still")
        assert tunnel.client.calls[-1] == b"still"
        assert server.eof_received() is False, "now both have ended"

    play(story)


def test_under_tls_one_end_ends_both(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        for client_half, server_half in ((False, True), (True, False)):
            tunnel = Tunnel(monkeypatch)
            tunnel.client.half, tunnel.server.half = client_half, server_half
            await tunnel.open()
            assert tunnel.ends[0].eof_received() is False
            assert "eof" not in tunnel.server.calls

    play(story)


def test_nothing_is_done_with_an_end_that_is_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        tunnel = Tunnel(monkeypatch)
        await tunnel.open()
        client, _ = tunnel.ends
        client.pause_writing()
        client.resume_writing()
        assert tunnel.server.calls[-2:] == ["pause", "resume"]
        tunnel.server.closing = True
        before = list(tunnel.server.calls)
        client.pause_writing()
        client.resume_writing()
        assert client.eof_received() is True
        assert tunnel.server.calls == before

    play(story)


class TestFirstBytes:
    """What a new client sends decides where it goes."""

    def test_a_client_is_read_until_it_has_said_enough(self) -> None:
        async def story() -> None:
            decided: list[bytes] = []

            async def decide(_: asyncio.Transport, data: bytes) -> None:
                decided.append(data)

            connections, transport = Connections(), Transport()
            first = FirstBytes(connections, lambda data: data.endswith(b"\n"), decide)
            first.connection_made(transport)
            assert list(connections) == [transport]
            first.data_received(b"CONN")
            await asyncio.sleep(0)
            assert (decided, transport.calls) == ([], [])
            first.data_received(b"ECT\n")
            await asyncio.sleep(0)
            assert (decided, transport.calls) == ([b"CONNECT\n"], ["pause"])
            first.connection_lost(None)
            assert list(connections) == []

        play(story)


class TestConnections:
    """Those of one server, which end together."""

    @pytest.mark.parametrize("error", [None, OSError("no"), asyncio.CancelledError()])
    def test_a_decision_that_fails_cuts_its_connection(self, error: BaseException | None) -> None:
        async def story() -> None:
            async def decision() -> None:
                if error:
                    raise error

            connections, transport = Connections(), Transport()
            connections.decide(transport, decision())
            for _ in range(5):
                await asyncio.sleep(0)
            assert transport.calls == ([] if error is None else ["abort"])
            assert connections._tasks == set()

        play(story)

    def test_a_cut_ends_decisions_and_connections(self) -> None:
        async def story() -> None:
            connections, new, open_, gone = Connections(), Transport(), Transport(), Transport()
            connections.decide(new, asyncio.Event().wait())  # type: ignore[arg-type]
            for transport in (open_, gone):
                connections.add(transport)
            connections.discard(gone)
            await asyncio.sleep(0)
            await connections.cut()
            assert (new.calls, open_.calls, gone.calls) == (["abort"], ["abort"], [])

        play(story)


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
