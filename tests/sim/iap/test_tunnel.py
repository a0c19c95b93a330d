"""A tunnel between a port of a host and one WebSocket after another, all of them played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import WSMsgType

from tpuctl.sim.iap import relay
from tpuctl.sim.iap.relay import Tunnel
from tpuctl.sim.iap.targets import Closing

HOST: Any = SimpleNamespace(node="n1")
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _no_faults() -> None:
    """In place of that of the folder, which starts a simulator."""


class Writer:
    """The way to the host: records what it gets, and may fail."""

    def __init__(self) -> None:
        self.content = b""
        self.failure: OSError | None = None
        self.closed = False

    def write(self, content: bytes) -> None:
        self.content += content

    async def drain(self) -> None:
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self.closed = True


class WebSocket:
    """A WebSocket of the client, whose messages the test sends."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: list[bytes] = []
        self.failure: Exception | None = None

    def send(self, data: bytes) -> None:
        self.end(WSMsgType.BINARY, data)

    def end(self, kind: WSMsgType, data: object = None) -> None:
        self.messages.put_nowait(SimpleNamespace(type=kind, data=data))

    async def receive(self) -> Any:
        return await self.messages.get()

    async def send_bytes(self, data: bytes) -> None:
        if self.failure:
            raise self.failure
        self.sent.append(data)


class Faults:
    """No faults; records what is carried."""

    def __init__(self) -> None:
        self.carried: list[tuple[int, bool]] = []
        self.cut = asyncio.Event()

    async def carry(self, size: int, *, up: bool) -> None:
        self.carried.append((size, up))

    async def watch(self) -> bool:
        await self.cut.wait()
        return False


class Site:
    """A tunnel, the host's end of it, and the WebSockets that have carried it."""

    def __init__(self) -> None:
        self.reader, self.writer = asyncio.StreamReader(), Writer()
        writer: Any = self.writer
        self.tunnel = Tunnel(self.reader, writer, HOST, "user:ada@example.com")
        self.faults = Faults()

    def serve(self) -> tuple[WebSocket, asyncio.Task[bool]]:
        """Have a new WebSocket carry the tunnel."""
        socket = WebSocket()
        anything: Any = socket
        faults: Any = self.faults
        return socket, asyncio.ensure_future(self.tunnel.serve(anything, faults))


def play(story: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        site = Site()
        try:
            await story(site)
        finally:
            await site.tunnel.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def closing_of(serving: asyncio.Task[bool]) -> tuple[int, bool]:
    with pytest.raises(Closing) as raised:
        await serving
    return raised.value.code, raised.value.resumable


def test_bytes_pass_both_ways() -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        site.reader.feed_data(b"SSH-2.0")
        await settle()
        socket.send(relay.data(b"hello ") + relay.data(b"host"))
        await settle()
        assert (site.writer.content, site.tunnel.received) == (b"hello host", 10)
        assert socket.sent == [relay.data(b"SSH-2.0")]
        assert site.faults.carried == [(7, False), (6, True), (4, True)]
        assert site.tunnel.in_use
        serving.cancel()

    play(story)


def test_much_is_sent_in_pieces() -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        content = bytes(2 * relay.LARGEST_DATA + 1)
        site.reader.feed_data(content)
        await settle()
        assert socket.sent == [
            relay.data(content[: relay.LARGEST_DATA]), relay.data(content[: relay.LARGEST_DATA]),
            relay.data(content[:1]),
        ]  # fmt: skip
        serving.cancel()

    play(story)


@pytest.mark.parametrize("more", [0, 1])
def test_the_client_hears_what_has_arrived_after_every_two_frames(more: int) -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        for size in (relay.LARGEST_DATA, relay.LARGEST_DATA, more):
            if size:
                socket.send(relay.data(bytes(size)))
        await settle()
        assert socket.sent == [relay.ack(2 * relay.LARGEST_DATA + 1)] * more
        socket.send(relay.data(b"x"))
        await settle()
        assert socket.sent == [relay.ack(2 * relay.LARGEST_DATA + 1)], "not again at once"
        serving.cancel()

    play(story)


@pytest.mark.parametrize(
    ("kind", "closed"),
    [
        (WSMsgType.CLOSE, True),
        (WSMsgType.CLOSING, False),
        (WSMsgType.CLOSED, False),
        (WSMsgType.ERROR, False),
    ],
)
def test_a_websocket_is_closed_by_the_client_or_lost(kind: WSMsgType, closed: bool) -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        await settle()
        socket.end(kind)
        assert await serving is closed
        assert not site.tunnel.in_use

    play(story)


def test_a_websocket_that_can_send_nothing_is_lost() -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        socket.failure = ConnectionResetError()
        site.reader.feed_data(b"x")
        assert await serving is False

    play(story)


def test_a_websocket_that_is_cut_is_lost() -> None:
    async def story(site: Site) -> None:
        _, serving = site.serve()
        await settle()
        site.faults.cut.set()
        assert await serving is False

    play(story)


def test_a_message_that_is_not_binary_closes_it() -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        socket.end(WSMsgType.TEXT, "hello")
        assert await closing_of(serving) == (4007, False)

    play(story)


def test_it_is_closed_when_the_host_has_sent_all() -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        site.reader.feed_data(b"bye")
        site.reader.feed_eof()
        assert await closing_of(serving) == (4010, False)
        assert socket.sent == [relay.data(b"bye")]

    play(story)


def test_a_host_that_breaks_off_has_sent_all() -> None:
    async def story(site: Site) -> None:
        _, serving = site.serve()
        site.reader.set_exception(ConnectionResetError())
        assert await closing_of(serving) == (4010, False)

    play(story)


def test_it_is_closed_when_the_host_takes_nothing_more() -> None:
    async def story(site: Site) -> None:
        socket, serving = site.serve()
        site.writer.failure = BrokenPipeError()
        socket.send(relay.data(b"abc"))
        assert await closing_of(serving) == (4009, False)
        assert site.tunnel.received == 0

    play(story)


def test_what_was_not_acknowledged_is_sent_again_to_the_next_websocket() -> None:
    async def story(site: Site) -> None:
        first, serving = site.serve()
        site.reader.feed_data(b"0123456789")
        await settle()
        first.send(relay.ack(4))
        await settle()
        first.end(WSMsgType.CLOSED)
        await serving
        site.reader.feed_data(b"abc")
        await settle()
        site.tunnel.rewind(6)
        second, serving = site.serve()
        await settle()
        assert b"".join(second.sent) == relay.data(b"6789abc")
        serving.cancel()

    play(story)


@pytest.mark.parametrize(
    ("position", "rewound", "confirmed"),
    [(3, 4074, 4005), (4, None, None), (5, None, None), (10, None, None), (11, 4006, 4006)],
)
def test_a_position_is_between_what_is_kept_and_what_was_sent(
    position: int, rewound: int | None, confirmed: int | None
) -> None:
    async def story(site: Site) -> None:
        site.reader.feed_data(b"0123456789")
        await settle()
        site.tunnel.confirm(4)
        codes: list[int | None] = []
        for call in (site.tunnel.rewind, site.tunnel.confirm):
            try:
                call(position)
                codes.append(None)
            except Closing as closing:
                codes.append(closing.code)
        assert codes == [rewound, confirmed]

    play(story)


@pytest.mark.parametrize("kept", [9, 10, 11])
def test_a_host_waits_while_its_client_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(relay, "WINDOW", 10)

    async def story(site: Site) -> None:
        socket, serving = site.serve()
        site.reader.feed_data(b"x" * kept)
        await settle()
        site.reader.feed_data(b"more")
        await settle()
        waits = kept >= 10
        assert socket.sent == [relay.data(b"x" * kept), *([] if waits else [relay.data(b"more")])]
        socket.send(relay.ack(2))
        await settle()
        assert (socket.sent[-1] == relay.data(b"more")) is (kept < 12)
        serving.cancel()

    play(story)


def test_a_client_that_came_back_takes_its_tunnel_over() -> None:
    async def story(site: Site) -> None:
        _, first = site.serve()
        await settle()
        second, serving = site.serve()
        assert await closing_of(first) == (4002, True)
        await settle()
        assert site.tunnel.in_use
        second.send(relay.data(b"here"))
        await settle()
        assert site.writer.content == b"here"
        serving.cancel()

    play(story)


def test_each_tunnel_has_a_session_that_nobody_guesses_and_an_end() -> None:
    async def story(site: Site) -> None:
        other = Site()
        assert site.tunnel.session != other.tunnel.session
        assert len(site.tunnel.session) == 64
        assert (site.tunnel.host, site.tunnel.owner) == (HOST, "user:ada@example.com")
        assert not site.tunnel.in_use
        await other.tunnel.close()
        assert other.writer.closed
        assert not site.writer.closed

    play(story)
