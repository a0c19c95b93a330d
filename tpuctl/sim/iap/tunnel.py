"""A tunnel to a port of a host: one TCP connection there, and one WebSocket after another to the client."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine

from aiohttp import WSMsgType, web

from tpuctl.sim.iap import close_codes, frames
from tpuctl.sim.iap.close_codes import Closing
from tpuctl.sim.iap.faults import TunnelFaults
from tpuctl.sim.records import Host

WINDOW = 1 << 20
"""Bytes that the relay keeps for a client until it acknowledges them; then the host has to wait."""
ACK_AFTER = 2 * frames.LARGEST_DATA
"""Bytes of a client's that the relay acknowledges together."""


ENDS = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
"""Messages after which a WebSocket carries no more; a CLOSE is the client's own."""


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
            raise Closing(close_codes.REWIND_FAILED)
        self.confirm(position)

    def confirm(self, position: int) -> None:
        """Forget what the client has received; raises Closing for a wrong position."""
        if position < self._kept_from:
            raise Closing(close_codes.BAD_ACK)
        if position > self._kept_from + len(self._kept):
            raise Closing(close_codes.INVALID_ACK)
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
            while content := await self._reader.read(frames.LARGEST_DATA):
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
            content = bytes(self._kept[start : start + frames.LARGEST_DATA])
            if content:
                position += len(content)
                await faults.carry(len(content), up=False)
                await socket.send_bytes(frames.data(content))
            elif self._ended:
                raise Closing(close_codes.READ_FAILED)
            else:
                await self._change()

    async def _receive(self, socket: web.WebSocketResponse, faults: TunnelFaults) -> bool:
        reader = frames.FrameReader()
        while (message := await socket.receive()).type not in ENDS:
            if message.type is not WSMsgType.BINARY:
                raise Closing(close_codes.INVALID_OPCODE)
            for frame in reader.feed(message.data):
                if isinstance(frame, frames.Ack):
                    self.confirm(frame.received)
                else:
                    await faults.carry(len(frame.content), up=True)
                    await self._write(frame.content)
            if self.received - self._acknowledged > ACK_AFTER:
                self._acknowledged = self.received
                await socket.send_bytes(frames.ack(self.received))
        return message.type is WSMsgType.CLOSE

    async def _write(self, content: bytes) -> None:
        try:
            self._writer.write(content)
            await self._writer.drain()
        except OSError:
            raise Closing(close_codes.WRITE_FAILED) from None
        self.received += len(content)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


async def _replaced(replaced: asyncio.Event) -> bool:
    await replaced.wait()
    raise Closing(close_codes.SESSION_IN_USE)


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
