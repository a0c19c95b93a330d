"""The ends of a tunnel on connections that the test plays: bytes, pauses, half-closed and lost ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tpuctl.sim.network import tunnels
from tpuctl.sim.network.tunnels import Connections, FirstBytes, client_of, open_tunnel

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
