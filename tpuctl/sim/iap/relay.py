"""Serves the relay of Identity-Aware Proxy, `wss://tunnel.cloudproxy.app/v4`: opens and resumes tunnels."""

from __future__ import annotations

import asyncio
import re
import secrets
import struct
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from tpuctl.sim.access import TUNNELLER
from tpuctl.sim.events import Events
from tpuctl.sim.faults import BandwidthLimits, FaultRegistry, reset
from tpuctl.sim.iam.callers import current_caller
from tpuctl.sim.iap import targets
from tpuctl.sim.iap.targets import INVALID_DATA, INVALID_TAG, Closing, Targets, TunnelFaults, target_of
from tpuctl.sim.records import Host

LARGEST_DATA = 16_384
"""Bytes in a data frame at most."""

CONNECTED, RECONNECTED, DATA, ACK = 0x0001, 0x0002, 0x0004, 0x0007
_TAG = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_POSITION = struct.Struct(">Q")


@dataclass(frozen=True)
class Data:
    """Bytes of the tunnelled connection."""

    content: bytes


@dataclass(frozen=True)
class Ack:
    """How many bytes the client has received since the tunnel was opened."""

    received: int


def connected(session: str) -> bytes:
    """Return the frame that opens a tunnel and names its session."""
    name = session.encode()
    return _TAG.pack(CONNECTED) + _LENGTH.pack(len(name)) + name


def reconnected(received: int) -> bytes:
    """Return the frame that resumes a tunnel: how many bytes of the client's have arrived."""
    return _TAG.pack(RECONNECTED) + _POSITION.pack(received)


def data(content: bytes) -> bytes:
    """Return the frame that carries bytes to the client."""
    return _TAG.pack(DATA) + _LENGTH.pack(len(content)) + content


def ack(received: int) -> bytes:
    """Return the frame that says how many bytes of the client's have arrived."""
    return _TAG.pack(ACK) + _POSITION.pack(received)


class FrameReader:
    """Takes a client's bytes, however they are split into messages, and returns its frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, message: bytes) -> Iterator[Data | Ack]:
        """Yield the frames that are complete with this message; raises Closing for what is no frame."""
        self._buffer += message
        while frame := self._next():
            yield frame

    def _next(self) -> Data | Ack | None:
        if len(self._buffer) < _TAG.size:
            return None
        (tag,) = _TAG.unpack_from(self._buffer)
        if tag == ACK:
            content = self._take(_TAG.size, _POSITION.size)
            return None if content is None else Ack(_POSITION.unpack(content)[0])
        if tag != DATA:
            raise Closing(INVALID_TAG)
        if len(self._buffer) < _TAG.size + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, _TAG.size)
        if length > LARGEST_DATA:
            raise Closing(INVALID_DATA)
        content = self._take(_TAG.size + _LENGTH.size, length)
        return None if content is None else Data(content)

    def _take(self, start: int, length: int) -> bytes | None:
        """Remove a frame whose content has this place from the buffer; None while it is not complete."""
        end = start + length
        if len(self._buffer) < end:
            return None
        content, self._buffer = self._buffer[start:end], self._buffer[end:]
        return content


WINDOW = 1 << 20
"""Bytes that the relay keeps for a client until it acknowledges them; then the host has to wait."""
ACK_AFTER = 2 * LARGEST_DATA
"""Bytes of a client's that the relay acknowledges together."""
ENDS = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
"""Messages after which a WebSocket carries no more; a CLOSE is the client's own."""
SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
BEARER = "bearer "

RESUMABLE = 600.0
"""Seconds for which a tunnel that has lost its client can be resumed; Google's own are not known."""
CLOSE_TIMEOUT = 1.0
"""Seconds for which a client may answer that it has seen the relay's close."""
LARGEST_MESSAGE = 1 << 20


class Relay:
    """The tunnels of one simulator."""

    def __init__(self, targets: Targets, registry: FaultRegistry, events: Events) -> None:
        self._targets = targets
        self._registry = registry
        self._limits = BandwidthLimits()
        self._events = events
        self._tunnels: dict[str, Tunnel] = {}
        self._sockets: set[web.WebSocketResponse] = set()
        self._expiring: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def application(self) -> web.Application:
        """Return the application that answers."""
        application = web.Application()
        application.router.add_get("/v4/connect", self._connect)
        application.router.add_get("/v4/reconnect", self._reconnect)
        application.on_shutdown.append(self._shut_down)
        return application

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        _check_client(request)
        target = target_of(request.query)
        self._events.note("request", "connect", target.name, f"port {target.port}", service="iap")
        host = self._targets.find(target)
        async with self._accepted(request, host) as (socket, faults):
            await faults.open()
            self._targets.authorize(target)
            streams = await self._targets.open(host, target.port)
            assert host is not None
            tunnel = Tunnel(*streams, host, _member())
            self._tunnels[tunnel.session] = tunnel
            await socket.send_bytes(connected(tunnel.session))
            await self._serve(tunnel, socket, faults)
        return socket

    async def _reconnect(self, request: web.Request) -> web.StreamResponse:
        _check_client(request)
        session, position = request.query.get("sid", ""), request.query.get("ack", "")
        if not position.isascii() or not position.isdecimal():
            raise web.HTTPBadRequest(text="ack has to be a number of bytes.")
        self._events.note("request", "reconnect", session[:8], f"ack {position}", service="iap")
        tunnel = self._tunnels.get(session)
        async with self._accepted(request, tunnel.host if tunnel else None) as (socket, faults):
            await faults.open()
            if tunnel is None or tunnel.owner != _member():
                raise Closing(targets.SESSION_UNKNOWN)
            tunnel.rewind(int(position))
            self._stop_timer(tunnel)
            await socket.send_bytes(reconnected(tunnel.received))
            await self._serve(tunnel, socket, faults)
        return socket

    @asynccontextmanager
    async def _accepted(
        self, request: web.Request, host: Host | None
    ) -> AsyncIterator[tuple[web.WebSocketResponse, TunnelFaults]]:
        """Accept a WebSocket, and close it with the code of a Closing that is raised inside."""
        faults = TunnelFaults(self._registry, self._limits, request, host)
        faults.refuse()
        socket = web.WebSocketResponse(
            timeout=CLOSE_TIMEOUT, protocols=(SUBPROTOCOL,), compress=False, max_msg_size=LARGEST_MESSAGE
        )
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            yield socket, faults
        except Closing as closing:
            if closing.code:
                await socket.close(code=closing.code, message=closing.reason.encode())
            else:
                reset(request.transport)
        finally:
            self._sockets.discard(socket)

    async def _serve(self, tunnel: Tunnel, socket: web.WebSocketResponse, faults: TunnelFaults) -> None:
        """Carry bytes; a tunnel whose client is lost waits for it, any other ends."""
        resumable = False
        try:
            resumable = not await tunnel.serve(socket, faults)
        except Closing as closing:
            resumable = closing.resumable
            raise
        finally:
            if resumable:
                self._keep(tunnel)
            else:
                await self._end(tunnel)

    def _keep(self, tunnel: Tunnel) -> None:
        """Have a tunnel end after a while without a client."""
        self._stop_timer(tunnel)
        loop = asyncio.get_running_loop()
        self._expiring[tunnel.session] = loop.call_later(RESUMABLE, self._expire, tunnel)

    def _stop_timer(self, tunnel: Tunnel) -> None:
        timer = self._expiring.pop(tunnel.session, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, tunnel: Tunnel) -> None:
        if tunnel.in_use:  # another WebSocket has taken it over
            return
        task = asyncio.ensure_future(self._end(tunnel))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, tunnel: Tunnel) -> None:
        self._stop_timer(tunnel)
        self._tunnels.pop(tunnel.session, None)
        await tunnel.close()

    async def _shut_down(self, _: web.Application) -> None:
        closing = [socket.close(code=1001, drain=False) for socket in self._sockets]
        await asyncio.gather(*closing, return_exceptions=True)
        for tunnel in list(self._tunnels.values()):
            await self._end(tunnel)


def _check_client(request: web.Request) -> None:
    """Raise the HTTP error of a request that is none of a client of the relay."""
    if request.headers.get("Origin") != TUNNELLER:
        raise web.HTTPForbidden(text=f"The Origin has to be {TUNNELLER}.")
    if SUBPROTOCOL not in re.split(r"[,\s]+", request.headers.get("Sec-WebSocket-Protocol", "")):
        raise web.HTTPBadRequest(text=f"The subprotocol has to be {SUBPROTOCOL}.")
    authorization = request.headers.get("Authorization", "")
    if not authorization.lower().startswith(BEARER) or not authorization[len(BEARER) :].strip():
        raise web.HTTPUnauthorized(text="The request has no access token.")


def _member() -> str:
    caller = current_caller()
    return caller.member if caller else ""


# A tunnel to a port of a host: one TCP connection there, and one WebSocket after another to the client.


class Tunnel:
    """Carries bytes both ways; what a client has not acknowledged is kept for its next WebSocket.

    `owner` is the member (see `iam.access.Caller`) who opened it, who alone may resume it.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: Host, owner: str = ""
    ) -> None:
        self.session = secrets.token_urlsafe(48)
        self.host = host
        self.owner = owner
        self.received = 0
        """Bytes of the client's that the host has got."""
        self._serving: asyncio.Event | None = None
        """Of the WebSocket that carries it now: set when another takes over."""
        self._acknowledged = 0
        self._reader = reader
        self._writer = writer
        self._kept = bytearray()
        """What the client has not acknowledged, sent or not."""
        self._kept_from = 0
        """The position of its first byte in all that the host has sent."""
        self._ended = False
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def in_use(self) -> bool:
        """Whether a WebSocket carries it now."""
        return self._serving is not None

    def rewind(self, position: int) -> None:
        """Resume after the first `position` bytes for the client; raises Closing if that cannot be."""
        if position < self._kept_from:
            raise Closing(targets.REWIND_FAILED)
        self.confirm(position)

    def confirm(self, position: int) -> None:
        """Forget what the client has received; raises Closing for a wrong position."""
        if position < self._kept_from:
            raise Closing(targets.BAD_ACK)
        if position > self._kept_from + len(self._kept):
            raise Closing(targets.INVALID_ACK)
        del self._kept[: position - self._kept_from]
        self._kept_from = position
        self._notify()

    async def serve(self, socket: web.WebSocketResponse, faults: TunnelFaults) -> bool:
        """Carry bytes over a WebSocket until it is lost or closed; returns whether the client has closed it.

        A WebSocket that carries it already is closed: its client has lost it, and came back before the relay
        noticed. Raises Closing when the relay has to close the new one.
        """
        await self._take_over()
        self._serving = replaced = asyncio.Event()
        try:
            receiving, sending = self._receive(socket, faults), self._send(socket, faults)
            return await _first(receiving, sending, faults.watch(), _replaced(replaced))
        except ConnectionResetError:
            return False
        finally:
            self._serving = None
            self._notify()

    async def close(self) -> None:
        """Close the connection to the host."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()

    async def _take_over(self) -> None:
        while self._serving is not None:
            self._serving.set()
            await self._change()

    async def _read(self) -> None:
        """Keep what the host sends, as long as there is room."""
        try:
            while content := await self._reader.read(LARGEST_DATA):
                self._kept += content
                self._notify()
                while len(self._kept) >= WINDOW:
                    await self._change()
        except OSError:
            pass
        self._ended = True
        self._notify()

    async def _send(self, socket: web.WebSocketResponse, faults: TunnelFaults) -> bool:
        """Send what is kept from the first byte on, then what comes."""
        position = self._kept_from
        while True:
            start = position - self._kept_from
            content = bytes(self._kept[start : start + LARGEST_DATA])
            if content:
                position += len(content)
                await faults.carry(len(content), up=False)
                await socket.send_bytes(data(content))
            elif self._ended:
                raise Closing(targets.READ_FAILED)
            else:
                await self._change()

    async def _receive(self, socket: web.WebSocketResponse, faults: TunnelFaults) -> bool:
        reader = FrameReader()
        while (message := await socket.receive()).type not in ENDS:
            if message.type is not WSMsgType.BINARY:
                raise Closing(targets.INVALID_OPCODE)
            for frame in reader.feed(message.data):
                if isinstance(frame, Ack):
                    self.confirm(frame.received)
                else:
                    await faults.carry(len(frame.content), up=True)
                    await self._write(frame.content)
            if self.received - self._acknowledged > ACK_AFTER:
                self._acknowledged = self.received
                await socket.send_bytes(ack(self.received))
        return message.type is WSMsgType.CLOSE

    async def _write(self, content: bytes) -> None:
        try:
            self._writer.write(content)
            await self._writer.drain()
        except OSError:
            raise Closing(targets.WRITE_FAILED) from None
        self.received += len(content)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


async def _replaced(replaced: asyncio.Event) -> bool:
    await replaced.wait()
    raise Closing(targets.SESSION_IN_USE)


async def _first(*works: Coroutine[None, None, bool]) -> bool:
    """Run coroutines until the first one ends, and return its result or raise its error."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
