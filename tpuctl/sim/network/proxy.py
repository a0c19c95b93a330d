"""A CONNECT proxy that decides by host name: serve here under TLS, tunnel, refuse, or pass through."""

from __future__ import annotations

import asyncio
import fnmatch
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.tunnels import Relay, Repaired

LONGEST_HEAD = 16 << 10
"""Bytes of a CONNECT request."""

CONNECT_TIMEOUT = 20.0
"""Seconds to reach a host that is passed through."""

HANDSHAKE_TIMEOUT = 20.0
"""Seconds for the TLS handshake with a client."""

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass(frozen=True)
class Serve:
    """End TLS here and hand the connection to a server of this process.

    `protocol` makes a protocol for a connection: `aiohttp.web.AppRunner.server`, after its setup.
    """

    protocol: Callable[[], asyncio.Protocol]


@dataclass(frozen=True)
class Tunnel:
    """Pass the bytes, TLS and all, to an address instead of the host that was asked for."""

    host: str
    port: int


@dataclass(frozen=True)
class Refuse:
    """Answer 403, with the reason in the status line: most clients show no more of a proxy's answer."""

    reason: str


Route = Serve | Tunnel | Refuse


class ConnectProxy:
    """An HTTP proxy for `https_proxy`. `routes` maps host names, `*` allowed, to what becomes of them.

    An exact name wins over a pattern, an earlier pattern over a later one; other hosts are passed through.
    As `http_proxy` it serves to refuse alone: what is not to be refused must not be sent to it.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        authority: CertificateAuthority,
        admit: Callable[[asyncio.Transport], Awaitable[None]] | None = None,
    ) -> None:
        self._routes = dict(routes)
        self._authority = authority
        self._admit = admit
        self._server: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: set[asyncio.Transport] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port."""
        served = [name for name, route in self._routes.items() if isinstance(route, Serve)]
        self._tls = self._authority.server_context(served) if served else None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), host, port, backlog=1024)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address[1]

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in list(self._transports):
            transport.abort()
        if self._server is not None:
            await self._server.wait_closed()
        await asyncio.sleep(0)  # lets the transports close their sockets

    def route(self, host: str) -> Route | None:
        """Return what becomes of a host; None is passed through."""
        host = host.lower().rstrip(".")
        if host in self._routes:
            return self._routes[host]
        return next((route for name, route in self._routes.items() if fnmatch.fnmatchcase(host, name)), None)

    def accept(self, transport: asyncio.Transport, head: bytes) -> None:
        """Deal with a client that has sent its request; it waits, paused, until then."""
        task = asyncio.ensure_future(self._answer(transport, head))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, transport))

    def track(self, transport: asyncio.Transport) -> None:
        """Remember a connection that is to be cut by `close`."""
        self._transports.add(transport)

    def connections(self) -> list[asyncio.Transport]:
        """Return the connections that are open."""
        return list(self._transports)

    def forget(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._transports.discard(transport)

    def _ended(self, task: asyncio.Task[None], transport: asyncio.Transport) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            transport.abort()

    async def _answer(self, transport: asyncio.Transport, head: bytes) -> None:
        if self._admit is not None:
            await self._admit(transport)
        target, plain = _target(head), _plain_host(head)
        route = self.route(target[0] if target else plain)
        if isinstance(route, Refuse):
            reason = f"{target[0] if target else plain}: {route.reason}"
            _reply(transport, f"403 {reason}", reason)
            return
        if target is None:
            _reply(transport, "405 Method Not Allowed", "This proxy knows CONNECT HOST:PORT only.")
            return
        host, port = target
        if isinstance(route, Serve):
            await self._serve(transport, route)
        elif isinstance(route, Tunnel):
            await self._tunnel(transport, route.host, route.port)
        else:
            await self._tunnel(transport, host, port)

    async def _serve(self, transport: asyncio.Transport, route: Serve) -> None:
        assert self._tls is not None
        inner = Repaired(route.protocol(), self)
        transport.write(ESTABLISHED)
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                transport, inner, self._tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
        except (OSError, ssl.SSLError):
            transport.abort()  # the client does not trust us, or has gone
            return
        self.forget(transport)
        if secure is not None:
            inner.connection_made(secure)

    async def _tunnel(self, client: asyncio.Transport, host: str, port: int) -> None:
        relay = Relay(client, self)
        loop = asyncio.get_running_loop()
        try:
            connecting = loop.create_connection(lambda: relay, host, port)
            upstream, _ = await asyncio.wait_for(connecting, CONNECT_TIMEOUT)
        except (TimeoutError, OSError, UnicodeError) as error:
            _reply(client, "502 Bad Gateway", f"{host}:{port} cannot be reached: {error}")
            return
        if client.is_closing():
            upstream.abort()
            return
        client.write(ESTABLISHED)
        client.set_protocol(Relay(upstream, self, client))
        client.resume_reading()


class _Client(asyncio.Protocol):
    """A client that has not said yet where it wants to go."""

    def __init__(self, proxy: ConnectProxy) -> None:
        self._proxy = proxy
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._proxy.track(self._transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._transport.pause_reading()
            self._proxy.accept(self._transport, self._head)
        elif len(self._head) > LONGEST_HEAD:
            _reply(self._transport, "431 Request Header Fields Too Large", "The request is too long.")

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.forget(self._transport)


def _target(head: bytes) -> tuple[str, int] | None:
    """Return host and port of a CONNECT request, or None."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
    if len(words) != 3 or words[0] != "CONNECT" or not head.endswith(b"\r\n\r\n"):
        return None
    host, _, port = words[1].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return None
    return host.strip("[]"), int(port)


def _plain_host(head: bytes) -> str:
    """Return the host of a request for `http://HOST/...`, or ''."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
    try:
        return urlsplit(words[1]).hostname or "" if len(words) == 3 else ""
    except ValueError:  # brackets that do not match
        return ""


def _reply(transport: asyncio.Transport, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    transport.write("\r\n".join(lines).encode("ascii", "backslashreplace") + b"\r\n\r\n" + body)
    transport.close()
