"""Faults of the relay: refused, cut, silent and slow tunnels, as a bare client of its protocol sees them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp
import pytest

from tests.sim.iap.site import Site, Tunnel, in_loop, server, tunnel
from tests.sim.iap.test_relay import LARGE, close_of
from tpuctl.sim.iap import relay


@pytest.mark.parametrize(
    ("code", "closed"),
    [
        ("4003", (4003, "failed to connect to backend")),
        ("4033", (4033, "not authorized")),
        ("4047", (4047, "Failed to lookup instance")),
        ("4000", (4000, "unknown error")),
    ],
)
def test_a_tunnel_is_refused_with_a_code(site: Site, code: str, closed: tuple[int, str]) -> None:
    site.running.faults.add("iap-refused", code=code, node="one", count=1)
    assert in_loop(lambda: close_of(site, "connect", site.target())) == closed
    assert (
        site.running.events.find(kind="fault", what="iap-refused")[-1].resource
        == f"{site.host.node}/workers/0"
    )


def test_a_request_is_answered_with_a_status(site: Site) -> None:
    site.running.faults.add("iap-refused", code="401")
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        in_loop(lambda: close_of(site, "connect", site.target()))
    assert error.value.status == 401


@pytest.mark.parametrize(
    "pattern", [{"node": "two"}, {"worker": "1"}, {"zone": "us-*"}, {"request": "reconnect"}]
)
def test_other_tunnels_are_not(site: Site, pattern: dict[str, str]) -> None:
    async def work() -> bytes:
        async with tunnel(site.url("iap_relay"), "connect", site.target()) as opened:
            return await opened.until(4)

    site.running.faults.add("iap-refused", **pattern)
    assert in_loop(work).startswith(b"SSH-")


async def carry_over_cuts(site: Site, port: int) -> tuple[bytes, int]:
    """Send LARGE to a host that echoes it, over as many connections as it takes; returns what came back."""
    url, received, sent, connections = site.url("iap_relay"), b"", 0, 1
    path, parameters = "connect", site.target(port)
    while True:
        async with tunnel(url, path, parameters) as opened:
            try:
                assert await opened.read()
                sent = sent if opened.confirmed is None else opened.confirmed
                while len(received) + len(opened.received) < len(LARGE):
                    piece = LARGE[sent : sent + 100_000]
                    await opened.send(piece)
                    sent += len(piece)
                    while len(received) + len(opened.received) < sent:
                        assert await opened.read()
                    await opened.ack(len(received) + len(opened.received))
                return received + opened.received, connections
            except (AssertionError, ConnectionResetError):
                received += opened.received
                path = "reconnect"
                parameters = {"sid": opened.session or parameters["sid"], "ack": str(len(received))}
                connections += 1


@pytest.mark.parametrize("code", ["", "4004"])
def test_cuts_in_the_middle_lose_and_double_no_byte(site: Site, echo_port: int, code: str) -> None:
    site.running.faults.add("iap-cut", bytes=1_000_000, count=4, **({"code": code} if code else {}))
    received, connections = in_loop(lambda: carry_over_cuts(site, echo_port))
    assert received == LARGE
    assert connections == 5


def test_a_cut_can_lose_the_tunnel(site: Site, echo_port: int) -> None:
    async def work() -> int | None:
        async with tunnel(site.url("iap_relay"), "connect", site.target(echo_port)) as opened:
            await opened.read()
            site.running.faults.add("iap-cut", lost=True, count=1)
            assert (await opened.closed())[0] == 1006
        return (await close_of(site, "reconnect", {"sid": opened.session, "ack": "0"}))[0]

    assert in_loop(work) == 4001


def test_an_open_tunnel_is_cut_at_once(site: Site, echo_port: int) -> None:
    async def work() -> tuple[int | None, str]:
        async with tunnel(site.url("iap_relay"), "connect", site.target(echo_port)) as opened:
            await opened.send(b"1234")
            await opened.until(4)
            site.running.faults.add("iap-cut", code="4004", count=1)
            return await opened.closed()

    assert in_loop(work) == (4004, "reauthentication required")


def test_a_stalled_tunnel_is_silent_until_the_fault_is_removed(site: Site, echo_port: int) -> None:
    async def work() -> bytes:
        async with tunnel(site.url("iap_relay"), "connect", site.target(echo_port)) as opened:
            await opened.send(b"1234")
            await opened.until(4)
            fault = site.running.faults.add("iap-stall")
            await until(lambda: site.running.events.find(kind="fault", detail=f"{fault.id} *"))
            await opened.send(b"5678")
            await opened.raw.ping()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(opened.read(), 0.2)
            site.running.faults.remove(fault.id)
            return await opened.until(8)

    assert in_loop(work) == b"12345678"


def test_a_slow_relay_opens_late_and_shares_a_bandwidth(site: Site) -> None:
    with server(site.host.address, lambda connection: connection.sendall(LARGE[:100_000])) as port:

        async def work() -> Tunnel:
            async with tunnel(site.url("iap_relay"), "connect", site.target(port)) as opened:
                await opened.until(100_000)
                return opened

        site.running.faults.add("iap-slow", latency="200ms", bandwidth="200kB")
        begin = time.monotonic()
        in_loop(work)
        assert time.monotonic() - begin > 0.6


def test_a_tunnel_without_a_client_ends_after_a_while(
    site: Site, echo_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not one that another WebSocket has taken over meanwhile."""
    monkeypatch.setattr(relay, "RESUMABLE", 0.05)
    tunnels = site.running.simulator._relay._tunnels

    async def work() -> None:
        url, target = site.url("iap_relay"), site.target(echo_port)
        async with tunnel(url, "connect", target) as lost, tunnel(url, "connect", target) as kept:
            await lost.read()
            await kept.read()
            async with tunnel(url, "reconnect", {"sid": kept.session, "ack": "0"}) as after:
                assert (await kept.closed())[0] == 4002
                lost.cut()
                await until(lambda: lost.session not in tunnels)
                await after.send(b"here")
                assert await after.until(4) == b"here"

    in_loop(work)


async def until(true: Callable[[], object]) -> None:
    """Wait for something on the simulator's side."""
    while not true():
        await asyncio.sleep(0.01)
