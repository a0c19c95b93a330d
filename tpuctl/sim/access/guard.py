"""Decides at every door of the simulator who may come in: one rule for HTTP, gRPC, the proxy and SSH."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from weakref import WeakSet, WeakValueDictionary

from aiohttp import web

from tpuctl.sim.access.peers import Address, OwnerOf, plain
from tpuctl.sim.access.secret import Secret
from tpuctl.sim.access.web_pages import page_refusal

FOREIGN = "the simulator is for the user who started it alone"
ROOT = 0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """Admits what `owner` says is a process of this user or of root, and what has the secret.

    Without `owner`, where the system does not tell who is at the other end, the secret alone counts. A
    request of a web page is refused in any case. Nothing of a refused request's body is read.
    """

    def __init__(self, secret: Secret, owner: OwnerOf | None) -> None:
        self.secret = secret
        self._owner = owner
        self._users = {ROOT, os.getuid(), os.geteuid()}
        self._trusted: WeakSet[asyncio.BaseTransport] = WeakSet()
        self._hops: WeakValueDictionary[Address, asyncio.Transport] = WeakValueDictionary()

    @property
    def knows_users(self) -> bool:
        """Whether the system tells who is at the other end of a connection."""
        return self._owner is not None

    def refusal(self, request: web.BaseRequest) -> str:
        """Return why an HTTP request is refused, '' if it is not."""
        reason = page_refusal(request.headers)
        if reason:
            return f"The request is refused: {reason}."
        if self.trusts(request.transport) or self.secret.allows(request.headers.get("Authorization", "")):
            return ""
        return f"The request is refused: {FOREIGN}."

    def trusts(self, transport: asyncio.BaseTransport | None) -> bool:
        """Return whether an open connection is from this user; the system is asked once a connection."""
        if transport is None:
            return False
        if transport in self._trusted:
            return True
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not peer or not own or not self.trusts_address(plain(peer), plain(own)):
            return False
        self._trusted.add(transport)
        return True

    def trust(self, transport: asyncio.BaseTransport) -> None:
        """Admit every request of a connection that has shown the secret at an outer door."""
        self._trusted.add(transport)

    def add_hop(self, transport: asyncio.Transport) -> None:
        """Admit what comes through a connection that the simulator itself has opened, while it is open."""
        self._hops[plain(transport.get_extra_info("sockname"))] = transport

    def trusts_address(self, client: Address, server: Address) -> bool:
        """Return whether the connection between these addresses is from this user, or the simulator's own."""
        if self._owner is None:
            hop = self._hops.get(client)
            return hop is not None and not hop.is_closing()
        return self._owner(client, server) in self._users

    def is_foreign(self, connection: socket.socket) -> bool:
        """Return whether an accepted connection is known to be from another user; for doors without HTTP."""
        try:
            return self.is_foreign_address(plain(connection.getpeername()), plain(connection.getsockname()))
        except OSError:  # it has been closed already
            return True

    def is_foreign_address(self, client: Address, server: Address) -> bool:
        """Return the same by addresses; False where the system does not tell."""
        return self.knows_users and not self.trusts_address(client, server)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 403 to what is refused, before any other middleware and handler."""
        reason = self.refusal(request)
        return refused(reason) if reason else await handler(request)


def refused(reason: str) -> web.Response:
    """Return the response to a refused request, in the JSON form of Google's errors."""
    error = {"code": 403, "message": reason, "status": "PERMISSION_DENIED"}
    return web.json_response({"error": error}, status=403)
