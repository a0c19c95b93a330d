"""A relay in a simulator, servers on a port of a host, and a bare client of the relay's protocol."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User
from tpuctl.sim.records import Host

T = TypeVar("T")

SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
HEADERS = {"Origin": "bot:iap-tunneler", "Authorization": "Bearer ya29.token"}
PATIENCE = 60.0
"""Seconds after which a test gives up what it waits for."""


class Site:
    """A simulator with a node of one host."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.running = RunningSimulator(folder / "sim", **options)
        self.user = User(folder)
        self.user.create(self.url("tpu_grpc"))

    @property
    def host(self) -> Host:
        """The node's host."""
        return self.running.world.nodes.get(f"{PARENT}/nodes/one").hosts()[0]

    def url(self, name: str) -> str:
        """What the simulator publishes under a name."""
        return str(self.running.simulator.endpoints[name])  # type: ignore[literal-required]

    def target(self, port: int = 22) -> dict[str, str]:
        """The parameters of a tunnel to a port of the host."""
        host = self.host
        return {
            "project": host.project,
            "zone": host.zone,
            "instance": host.hostname,
            "interface": "nic0",
            "port": str(port),
            "newWebsocket": "True",
        }


class Tunnel:
    """One WebSocket to the relay, and what came through it."""

    def __init__(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        self.raw = raw
        self.session = ""
        self.confirmed: int | None = None
        """The position in a RECONNECT frame."""
        self.acks: list[int] = []
        self.received = b""

    async def send(self, content: bytes) -> None:
        """Send bytes in data frames."""
        for start in range(0, len(content), 16_384):
            piece = content[start : start + 16_384]
            await self.raw.send_bytes(struct.pack(">HI", 4, len(piece)) + piece)

    async def ack(self, position: int | None = None) -> None:
        """Acknowledge what has been received, or another position."""
        await self.raw.send_bytes(struct.pack(">HQ", 7, len(self.received) if position is None else position))

    async def read(self) -> bool:
        """Take one message; returns whether there was one."""
        message = await asyncio.wait_for(self.raw.receive(), PATIENCE)
        if message.type is not aiohttp.WSMsgType.BINARY:
            return False
        (tag,) = struct.unpack_from(">H", message.data)
        if tag == 1:
            self.session = message.data[6:].decode()
        elif tag == 2:
            (self.confirmed,) = struct.unpack_from(">Q", message.data, 2)
        elif tag == 4:
            assert len(message.data) - 6 == struct.unpack_from(">I", message.data, 2)[0] <= 16_384
            self.received += message.data[6:]
        else:
            assert tag == 7
            self.acks.append(struct.unpack_from(">Q", message.data, 2)[0])
        return True

    async def until(self, length: int) -> bytes:
        """Read until so many bytes have come, and return them."""
        while len(self.received) < length:
            assert await self.read(), self.raw.close_code
        return self.received

    async def closed(self) -> tuple[int | None, str]:
        """Read until the relay closes the WebSocket, and return its code and reason."""
        reason = ""
        while True:
            message = await asyncio.wait_for(self.raw.receive(), PATIENCE)
            if message.type is aiohttp.WSMsgType.CLOSE:
                reason = str(message.extra)
            if message.type is not aiohttp.WSMsgType.BINARY:
                return self.raw.close_code, reason

    def cut(self) -> None:
        """Lose the connection without a word."""
        transport: Any = self.raw._writer.transport
        transport.abort()


@asynccontextmanager
async def tunnel(
    url: str, path: str, parameters: dict[str, str], headers: dict[str, str] | None = None
) -> AsyncIterator[Tunnel]:
    """Open a WebSocket to the relay and read the first message."""
    options = {"headers": HEADERS if headers is None else headers, "protocols": (SUBPROTOCOL,)}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/v4/{path}", params=parameters, **options) as raw,  # type: ignore[arg-type]
    ):
        opened = Tunnel(raw)
        yield opened


def in_loop(work: Callable[[], Coroutine[object, None, T]]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(asyncio.wait_for(work(), 3 * PATIENCE))


@contextmanager
def server(address: str, handle: Callable[[socket.socket], object]) -> Iterator[int]:
    """Serve connections to an address of a simulated host, each in a thread; yields the port."""
    listener = socket.create_server((address, 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            handle(connection)

    def accept() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def echo(connection: socket.socket) -> None:
    """Send back what comes."""
    while content := connection.recv(1 << 16):
        connection.sendall(content)
