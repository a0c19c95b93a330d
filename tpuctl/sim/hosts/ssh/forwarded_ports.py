"""Connects to ports of a host for clients that forward them, and refuses to feed a forward with itself."""

from __future__ import annotations

import asyncio
from typing import cast

import asyncssh
from asyncssh.forward import SSHForwarder

from tpuctl.sim.network.ports import LOOPBACK

Route = tuple[int, int]
"""The port that a connection comes from, and the one that it goes to."""


class ForwardedPorts:
    """The connections that one host has open for its clients.

    What is not its own is this machine's. Where nothing listens on port 6006 but `ssh -L 6006:localhost:6006`
    itself, each connection would open the next one.
    """

    def __init__(self) -> None:
        self._routes: set[Route] = set()

    async def connect(self, address: str, port: int, origin_port: int) -> asyncssh.SSHTCPSession[bytes]:
        """Return the session of a client's channel; raises ChannelOpenError where nothing listens.

        `origin_port` is the port from which the client's own client came.
        """
        if (origin_port, port) in self._routes:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "only this forward listens there")
        # A port that is bound is used for no other connection, so the origin says whose it is.
        source = (address, 0) if address == LOOPBACK else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _ForwardedConnection(self._routes), address, port, local_addr=source
            )
        except OSError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        return cast("asyncssh.SSHTCPSession[bytes]", SSHForwarder(connection))


class _ForwardedConnection(SSHForwarder):
    def __init__(self, routes: set[Route]) -> None:
        super().__init__()
        self._routes = routes
        self._route: Route = (0, 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._route = transport.get_extra_info("sockname")[1], transport.get_extra_info("peername")[1]
        self._routes.add(self._route)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._routes.discard(self._route)
        super().connection_lost(exc)
