"""Simulates network loss: holds up and cuts connections of programs, found in /proc."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tpuctl.sim.access.peers import sockets
from tpuctl.sim.hosts.connections import can_tell, sockets_of
from tpuctl.sim.hosts.programs.processes import belonging, snapshot

POLL_INTERVAL = 0.05
"""Seconds between looks at whether the host has its network again."""


class NetworkIsolation:
    """Tells the connections of such hosts; `marks` returns the marks of those without network now."""

    def __init__(self, marks: Callable[[], set[str]]) -> None:
        self._marks = marks

    async def admit(self, transport: asyncio.BaseTransport | None) -> None:
        """Return at once; for a connection from a host without network, when the host has it again."""
        while self._marks() and await self._is_isolated(transport):
            await asyncio.sleep(POLL_INTERVAL)

    async def cut(self, transports: Iterable[asyncio.BaseTransport | None]) -> None:
        """Cut those of these connections that come from a host without network."""
        if not self._marks():
            return
        ports = await asyncio.to_thread(_ports_of, self._marks())
        for transport in transports:
            if isinstance(transport, asyncio.Transport) and _port(transport) in ports:
                transport.abort()

    async def _is_isolated(self, transport: asyncio.BaseTransport | None) -> bool:
        if transport is None or transport.is_closing():
            return False
        return _port(transport) in await asyncio.to_thread(_ports_of, self._marks())


def _port(transport: asyncio.BaseTransport) -> int:
    peer = transport.get_extra_info("peername")
    return int(peer[1]) if peer else 0


def _ports_of(marks: set[str]) -> set[int]:
    """The ports of all TCP sockets that the marked processes have open."""
    if not can_tell():  # macOS
        return set()
    inodes = {inode for pid in belonging(snapshot(), marks.__contains__, set()) for inode in sockets_of(pid)}
    return {own_end[1] for own_end, inode in sockets() if inode in inodes}
