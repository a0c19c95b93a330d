"""The relay of Identity-Aware Proxy as a bare client of its protocol sees it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import pytest

from tests.sim.iap.site import HEADERS, PATIENCE, SUBPROTOCOL, Site, in_loop, server, tunnel

LARGE = bytes(range(256)) * 12_000
"""Three megabytes."""


def test_a_tunnel_to_port_22_meets_the_hosts_ssh_server(site: Site) -> None:
    async def work() -> tuple[str, bytes]:
        async with tunnel(site.url("iap_relay"), "connect", site.target()) as opened:
            await opened.until(4)
            return opened.session, opened.received

    session, banner = in_loop(work)
    assert len(session) > 32
    assert banner.startswith(b"SSH-")


def test_every_byte_arrives_in_both_directions_and_is_acknowledged(site: Site, echo_port: int) -> None:
    async def work() -> tuple[bytes, list[int]]:
        async with tunnel(site.url("iap_relay"), "connect", site.target(echo_port)) as opened:
            for start in range(0, len(LARGE), 1 << 18):
                await opened.send(LARGE[start : start + (1 << 18)])
                await opened.until(min(start + (1 << 18), len(LARGE)))
                await opened.ack()
            return opened.received, opened.acks

    received, acks = in_loop(work)
    assert received == LARGE
    assert acks == sorted(acks)
    assert len(LARGE) - acks[-1] <= 3 * 16_384
    assert max(after - before for before, after in zip([0, *acks], acks, strict=False)) <= 4 * 16_384


def test_a_host_waits_for_a_client_that_acknowledges_nothing(site: Site) -> None:
    """And goes on once it does: the relay keeps a bounded number of bytes."""
    with server(site.host.address, lambda connection: connection.sendall(LARGE)) as port:

        async def work() -> int:
            async with tunnel(site.url("iap_relay"), "connect", site.target(port)) as opened:
                await opened.until(1 << 20)
                kept = site.running.simulator._relay._tunnels[opened.session]._kept
                assert len(kept) <= (1 << 20) + 16_384
                while len(opened.received) < len(LARGE):
                    await opened.ack()
                    assert await opened.read()
                return len(opened.received)

        assert in_loop(work) == len(LARGE)


def test_frames_may_be_split_and_joined(site: Site, echo_port: int) -> None:
    frames = b"".join(struct.pack(">HI", 4, len(word)) + word for word in (b"one", b"", b"two", b"three"))

    async def work() -> bytes:
        async with tunnel(site.url("iap_relay"), "connect", site.target(echo_port)) as opened:
            await opened.raw.send_bytes(frames)
            for byte in frames:
                await opened.raw.send_bytes(bytes([byte]))
            return await opened.until(22)

    assert in_loop(work) == b"onetwothreeonetwothree"


def test_a_tunnel_that_was_cut_goes_on_where_it_was(site: Site, echo_port: int) -> None:
    """What was sent and not acknowledged comes again, on each side."""

    async def work() -> tuple[int | None, bytes]:
        url = site.url("iap_relay")
        async with tunnel(url, "connect", site.target(echo_port)) as before:
            await before.send(b"0123456789")
            await before.until(10)
            before.cut()
        resumed = {"sid": before.session, "ack": "4", "zone": site.host.zone}
        async with tunnel(url, "reconnect", resumed) as after:
            await after.until(6)
            await after.send(b"abc")
            return after.confirmed, await after.until(9)

    assert in_loop(work) == (10, b"456789abc")


def test_bytes_that_come_while_nobody_is_there_are_kept(site: Site) -> None:
    ready, written = socket.socketpair()

    def late(connection: socket.socket) -> None:
        connection.sendall(b"early ")
        ready.recv(1)  # the client is gone
        connection.sendall(b"late")
        ready.sendall(b".")
        ready.recv(1)

    async def work() -> bytes:
        with server(site.host.address, late) as port:
            url = site.url("iap_relay")
            async with tunnel(url, "connect", site.target(port)) as before:
                await before.until(6)
                before.cut()
            written.sendall(b".")
            written.recv(1)
            async with tunnel(url, "reconnect", {"sid": before.session, "ack": "6"}) as after:
                received = await after.until(4)
                written.sendall(b".")
                assert await after.closed() == (4010, "backend closed the connection")
                return received

    try:
        assert in_loop(work) == b"late"
    finally:
        ready.close()
        written.close()


def test_a_client_that_comes_back_before_the_relay_has_noticed_takes_over(site: Site, echo_port: int) -> None:
    async def work() -> tuple[bytes, tuple[int | None, str]]:
        url = site.url("iap_relay")
        async with tunnel(url, "connect", site.target(echo_port)) as before:
            await before.read()
            async with tunnel(url, "reconnect", {"sid": before.session, "ack": "0"}) as after:
                await after.send(b"here")
                return await after.until(4), await before.closed()

    assert in_loop(work) == (b"here", (4002, "session in use"))


async def close_of(site: Site, path: str, parameters: dict[str, str]) -> tuple[int | None, str]:
    async with tunnel(site.url("iap_relay"), path, parameters) as opened:
        return await opened.closed()


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"instance": "t1v-n-none-w-0"}, 4047, "Failed to lookup instance"),
        ({"zone": "us-central1-a"}, 4047, "Failed to lookup instance"),
        ({"project": "another"}, 4047, "Failed to lookup instance"),
        ({"port": "1"}, 4003, "failed to connect to backend"),
    ],
)
def test_a_target_that_cannot_be_reached(site: Site, changes: dict[str, str], code: int, reason: str) -> None:
    assert in_loop(lambda: close_of(site, "connect", site.target() | changes)) == (code, reason)


def test_a_session_that_nobody_has_any_more(site: Site, echo_port: int) -> None:
    async def work() -> None:
        url, target = site.url("iap_relay"), site.target(echo_port)
        assert (await close_of(site, "reconnect", {"sid": "none", "ack": "0"}))[0] == 4001
        async with tunnel(url, "connect", target) as opened:
            await opened.read()
            again = {"sid": opened.session, "ack": "0"}
            await opened.raw.close()
        while opened.session in site.running.simulator._relay._tunnels:  # the relay reads the close
            await asyncio.sleep(0.01)
        assert (await close_of(site, "reconnect", again))[0] == 4001, "its client has closed it"

    in_loop(work)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (struct.pack(">HI", 9, 0), 4008),
        (struct.pack(">HI", 4, 16_385), 4013),
        (struct.pack(">HQ", 7, 1), 4006),
        ("text", 4007),
    ],
)
def test_a_message_that_is_wrong_ends_the_tunnel(
    site: Site, echo_port: int, message: bytes | str, code: int
) -> None:
    async def work() -> int | None:
        async with tunnel(site.url("iap_relay"), "connect", site.target(echo_port)) as opened:
            await opened.read()
            await (
                opened.raw.send_str(message) if isinstance(message, str) else opened.raw.send_bytes(message)
            )
            return (await opened.closed())[0]

    assert in_loop(work) == code


def test_positions_that_go_back(site: Site, echo_port: int) -> None:
    async def work() -> None:
        url = site.url("iap_relay")
        async with tunnel(url, "connect", site.target(echo_port)) as opened:
            await opened.send(b"0123456789")
            await opened.until(10)
            await opened.ack()
            await opened.send(b"x")
            await opened.until(11)
            opened.cut()
        for position, code in (("12", 4006), ("9", 4074)):
            assert (await close_of(site, "reconnect", {"sid": opened.session, "ack": position}))[0] == code

    in_loop(work)


@pytest.mark.parametrize(
    ("path", "headers", "changes", "status"),
    [
        ("connect", {"Authorization": ""}, {}, 401),
        ("connect", {"Authorization": "Bearer "}, {}, 401),
        ("connect", {"Authorization": "Basic abc"}, {}, 401),
        ("connect", {"Origin": ""}, {}, 403),
        ("connect", {"Origin": "https://evil.example"}, {}, 403),
        ("connect", {"Host": "evil.example"}, {}, 403),
        ("connect", {}, {"port": "65536"}, 400),
        ("connect", {}, {"port": "ssh"}, 400),
        ("connect", {}, {"instance": ""}, 400),
        ("connect", {}, {"interface": "nic1"}, 400),
        ("reconnect", {}, {"sid": "x"}, 400),
        ("reconnect", {}, {"sid": "x", "ack": "-1"}, 400),
        ("elsewhere", {}, {}, 404),
    ],
)
def test_requests_that_are_no_tunnel(
    site: Site, path: str, headers: dict[str, str], changes: dict[str, str], status: int
) -> None:
    async def work() -> int:
        sent = {name: text for name, text in (HEADERS | headers).items() if text}
        try:
            async with tunnel(site.url("iap_relay"), path, site.target() | changes, sent):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    assert in_loop(work) == status


def test_another_subprotocol_is_refused(site: Site) -> None:
    async def work() -> int:
        url = f"{site.url('iap_relay')}/v4/connect"
        options: dict[str, Any] = {
            "params": site.target(),
            "headers": HEADERS,
            "protocols": (f"x{SUBPROTOCOL}",),
        }
        async with aiohttp.ClientSession() as session:
            try:
                async with session.ws_connect(url, **options):
                    return 101
            except aiohttp.WSServerHandshakeError as error:
                return error.status

    assert in_loop(work) == 400


UPGRADE = (
    "GET /v4/connect?{} HTTP/1.1\r\nHost: tunnel.cloudproxy.app\r\nOrigin: bot:iap-tunneler\r\n"
    "Authorization: Bearer ya29.token\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
)


def test_through_the_proxy_the_relay_has_its_own_name_and_a_certificate(site: Site, echo_port: int) -> None:
    frame = struct.pack(">HI", 4, 5) + b"hello"
    masked = bytes([0x82, 0x80 | len(frame), 0, 0, 0, 0]) + frame
    proxy = urlsplit(site.url("proxy"))
    context = ssl.create_default_context(cafile=site.url("ca_file"))
    with socket.create_connection((proxy.hostname, proxy.port), timeout=PATIENCE) as plain:
        plain.sendall(b"CONNECT tunnel.cloudproxy.app:443 HTTP/1.1\r\n\r\n")
        assert b" 200 " in plain.recv(1 << 16)
        with context.wrap_socket(plain, server_hostname="tunnel.cloudproxy.app") as secure:
            secure.sendall(UPGRADE.format(urlencode(site.target(echo_port))).encode())
            received = b""
            while b"\0\1" not in received:  # the frame that opens the tunnel
                received += secure.recv(1 << 16)
            assert received.startswith(b"HTTP/1.1 101 ")
            secure.sendall(masked)
            while frame not in received:
                received += secure.recv(1 << 16)
