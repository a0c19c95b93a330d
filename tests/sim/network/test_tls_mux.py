"""The TLS port that gRPC and REST share."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sim.guards import guard_of
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.tpu_servers import HTTP2, TlsMux

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
