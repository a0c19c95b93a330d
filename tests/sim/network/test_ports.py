"""The ports of servers: the same after a restart where they are free, else others.

The TLS port that gRPC and REST share.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sim.guards import guard_of
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.tunnels import Ports, bound
from tpuctl.sim.tpu_servers import HTTP2, TlsMux


def binder(taken: set[int], error: int = errno.EADDRINUSE) -> Callable[[int], socket.socket]:
    """Return what binds a socket, unless a port is taken."""

    def bind(port: int) -> socket.socket:
        if port in taken:
            raise OSError(error, "in use")
        return bound("127.0.0.1", 0 if port else port)

    return bind


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return Ports(tmp_path / "ports.json")


def test_candidates_are_below_those_that_systems_give_to_clients(ports: Ports) -> None:
    *chosen, last = ports.candidates("a")
    assert (len(chosen), last) == (50, 0)
    assert all(20_000 <= port < 30_000 for port in chosen)
    assert len(set(chosen)) > 25
    ports.note("a", 4711)
    first, *others = ports.candidates("a")
    assert (first, len(others), others[-1]) == (4711, 51, 0)


def test_a_port_is_known_until_it_is_forgotten(ports: Ports) -> None:
    assert not ports.known("a")
    with pytest.raises(KeyError):
        ports.port("a")
    ports.note("a", 4711)
    assert (ports.known("a"), ports.port("a")) == (True, 4711)
    ports.forget("a")
    ports.forget("a")
    assert not ports.known("a")


def test_ports_are_saved_if_they_have_changed(tmp_path: Path, ports: Ports) -> None:
    file = tmp_path / "ports.json"
    ports.save()
    assert not file.exists()
    ports.note("a", 4711)
    ports.save()
    assert json.loads(file.read_text()) == {"a": 4711}
    file.unlink()
    ports.save()
    assert not file.exists(), "it has been saved"
    file.write_text('{"a": 4712}')
    again = Ports(file)
    assert again.port("a") == 4712
    again.forget("a")
    again.save()
    assert json.loads(file.read_text()) == {}


def test_a_server_listens_at_the_first_free_candidate(ports: Ports) -> None:
    ports.note("a", 4711)
    tried: list[int] = []

    def bind(port: int) -> socket.socket:
        tried.append(port)
        return binder({4711})(port)

    with ports.listen("a", bind) as listener:
        assert ports.port("a") == listener.getsockname()[1]
    assert (tried[0], len(tried)) == (4711, 2)


@pytest.mark.parametrize(
    ("taken", "error"),
    [(set(range(65536)), errno.EADDRINUSE), ({4711}, errno.EACCES)],
    ids=["all are taken", "another error"],
)
def test_a_server_that_cannot_listen_says_why(ports: Ports, taken: set[int], error: int) -> None:
    ports.note("a", 4711)
    with pytest.raises(OSError) as raised:  # noqa: PT011  by its number
        ports.listen("a", binder(taken, error))
    assert raised.value.errno == error


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_server_that_binds_by_itself_tries_again(ports: Ports, error: type[Exception]) -> None:
    ports.note("a", 4711)
    tried: list[int] = []

    async def start(port: int) -> int:
        tried.append(port)
        if len(tried) < 3:
            raise error
        return 8080

    assert asyncio.run(ports.start("a", start)) == 8080 == ports.port("a")
    assert (tried[0], len(tried)) == (4711, 3)

    async def fail(port: int) -> int:
        raise error

    with pytest.raises(error):
        asyncio.run(ports.start("b", fail))


NAME = "tpu.googleapis.com"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[..., Awaitable[Stream]]


@pytest.mark.parametrize(
    ("first", "server"), [(HTTP2 + b" * HTTP/2.0", b"grpc"), (b"GET / HTTP/1.1", b"rest")]
)
def test_the_first_bytes_say_which_server_it_is_for(tmp_path: Path, first: bytes, server: bytes) -> None:
    async def talk() -> bytes:
        async with running_mux(tmp_path) as (_, connect):
            reader, writer = await connect()
            writer.write(first)
            answer = await reader.readexactly(len(server + first))
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(talk()) == server + first


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2"], "h2"), (["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "http/1.1"), ([], None)],
)
def test_a_client_that_offers_both_gets_rest(tmp_path: Path, offered: list[str], chosen: str | None) -> None:
    async def talk() -> object:
        async with running_mux(tmp_path) as (_, connect):
            _, writer = await connect(offered)
            protocol: object = writer.get_extra_info("ssl_object").selected_alpn_protocol()
            writer.close()
            return protocol

    assert asyncio.run(talk()) == chosen


def test_a_connection_that_comes_early_waits(tmp_path: Path) -> None:
    async def talk() -> bytes:
        async with running_mux(tmp_path, forwarding=False) as (forward, connect):
            reader, writer = await connect()
            writer.write(b"GET")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.readexactly(1), 0.05)
            forward()
            answer = await reader.readexactly(7)
            writer.close()
            return answer

    assert asyncio.run(talk()) == b"restGET"


def test_megabytes_go_both_ways_and_arrive_before_the_end(tmp_path: Path) -> None:
    data = b"GET" + os.urandom(4 << 20)

    async def talk() -> bytes:
        async with running_mux(tmp_path) as (_, connect):
            reader, writer = await connect()
            sending = asyncio.create_task(_send(writer, data))
            answer = await reader.readexactly(4 + len(data))
            await sending
            writer.close()
            return answer

    assert asyncio.run(talk()) == b"rest" + data


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def test_the_end_of_the_server_reaches_the_client_after_its_last_byte(tmp_path: Path) -> None:
    async def talk() -> bytes:
        async with running_mux(tmp_path) as (_, connect):
            reader, writer = await connect()
            writer.write(b"BYE")
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(talk()) == b"restBYE" + bytes(1 << 20)


@asynccontextmanager
async def running_mux(
    folder: Path, *, forwarding: bool = True
) -> AsyncIterator[tuple[Callable[[], None], Connect]]:
    """Two servers that say their names and echo, a TLS port before them, and a way to connect to it."""
    authority = CertificateAuthority(folder)
    echoes: set[asyncio.Task[None]] = set()
    servers = [await asyncio.start_server(_echo(name, echoes), "127.0.0.1", 0) for name in (b"grpc", b"rest")]
    grpc, rest = (server.sockets[0].getsockname()[1] for server in servers)
    mux = TlsMux(authority.server_context([NAME]), guard_of(folder))
    port = await mux.start()

    async def connect(protocols: list[str] | None = None) -> Stream:
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        if protocols:
            context.set_alpn_protocols(protocols)
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)

    def forward() -> None:
        mux.forward_to(grpc=grpc, rest=rest)

    if forwarding:
        forward()
    try:
        yield forward, connect
    finally:
        await mux.close()
        for server in servers:
            server.close()
            await server.wait_closed()
        await asyncio.gather(*echoes)


def _echo(
    name: bytes, echoes: set[asyncio.Task[None]]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name)
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
            if data == b"BYE":
                writer.write(bytes(1 << 20))
                break
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echoes.add(asyncio.get_running_loop().create_task(echo(reader, writer)))

    return accept
