"""Serves a CONNECT proxy that routes by host name: serve in this process, tunnel, refuse, or pass through.

- Maps Google's host names to simulated services, for the proxy.
"""

from __future__ import annotations

import asyncio
import fnmatch
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from tpuctl.sim.access import FOREIGN, Guard
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.tunnels import LOOPBACK, Connections, FirstBytes, WebServers, open_tunnel
from tpuctl.sim.settings import PASS, REFUSE

LONGEST_LINE = 64 << 10
"""Bytes of a request's head, or of one line in a chunked body; longer ones are passed on without a look."""
_IDENTITY = re.compile(rb"\r\ntransfer-encoding:[ \t]*identity[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*(?=\r\n)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[0-9a-f]+(?=[;\r \t])", re.IGNORECASE)
LONGEST_HEAD = 16 << 10
"""Bytes of a CONNECT request."""
END_OF_HEAD = b"\r\n\r\n"

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
    """Pass the bytes, TLS included, to another address than the one in the request."""

    host: str
    port: int


@dataclass(frozen=True)
class Refuse:
    """Answer 403, with the reason in the status line: most clients show no more of a proxy's answer."""

    reason: str


Route = Serve | Tunnel | Refuse


class ConnectProxy:
    """An HTTP proxy for `https_proxy`. `routes` maps host names, `*` allowed, to what happens to them.

    An exact name wins over a pattern, an earlier pattern over a later one; other hosts are passed through.
    As `http_proxy` it can only refuse. `guard` decides first who may use it; `admit` may hold up a connection
    before it is routed.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        authority: CertificateAuthority,
        guard: Guard,
        admit: Callable[[asyncio.Transport], Awaitable[None]] | None = None,
    ) -> None:
        self._routes = dict(routes)
        self._authority = authority
        self._guard = guard
        self._admit = admit
        self._server: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._connections = Connections()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port."""
        served = [name for name, route in self._routes.items() if isinstance(route, Serve)]
        self._tls = self._authority.server_context(served) if served else None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: FirstBytes(self._connections, _is_complete, self._answer), host, port, backlog=1024
        )
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address[1]

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        await self._connections.cut()
        if self._server is not None:
            await self._server.wait_closed()

    def route(self, host: str) -> Route | None:
        """Return the route of a host; None is passed through."""
        host = host.lower().rstrip(".")
        if host in self._routes:
            return self._routes[host]
        return next((route for name, route in self._routes.items() if fnmatch.fnmatchcase(host, name)), None)

    def connections(self) -> list[asyncio.Transport]:
        """Return the connections that are open."""
        return list(self._connections)

    async def _answer(self, client: asyncio.Transport, head: bytes) -> None:
        if END_OF_HEAD not in head:
            _reply(client, "431 Request Header Fields Too Large", "The request is too long.")
            return
        if not self._admits(client, head):
            _reply(client, f"407 {FOREIGN}", FOREIGN, "Proxy-Authenticate: Basic realm=simulator")
            return
        if self._admit is not None:
            await self._admit(client)
        target, plain_host = _target(head), _plain_host(head)
        host = target[0] if target else plain_host
        route = self.route(host)
        if isinstance(route, Refuse):
            reason = f"{host}: {route.reason}"
            _reply(client, f"403 {reason}", reason)
        elif target is None:
            _reply(client, "405 Method Not Allowed", "This proxy knows CONNECT HOST:PORT only.")
        elif isinstance(route, Serve):
            await self._serve(client, route)
        elif isinstance(route, Tunnel):
            await self._tunnel(client, (route.host, route.port))
        else:
            await self._tunnel(client, target)

    def _admits(self, client: asyncio.Transport, head: bytes) -> bool:
        """Return whether a client may use the proxy; one that has shown the secret is then trusted."""
        if self._guard.trusts(client):
            return True
        if not self._guard.secret.allows(_proxy_authorization(head)):
            return False
        self._guard.trust(client)
        return True

    async def _serve(self, client: asyncio.Transport, route: Serve) -> None:
        assert self._tls is not None
        server = RepairedFraming(route.protocol(), self._connections)
        client.write(ESTABLISHED)
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                client, server, self._tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
        except (OSError, ssl.SSLError):
            client.abort()  # the client does not trust us, or has gone
            return
        self._connections.discard(client)
        if secure is not None:
            self._guard.trust(secure)
            server.connection_made(secure)

    async def _tunnel(self, client: asyncio.Transport, address: tuple[str, int]) -> None:
        try:
            await open_tunnel(client, address, self._connections, self._guard, to_client=ESTABLISHED)
        except (TimeoutError, OSError, UnicodeError) as error:
            _reply(client, "502 Bad Gateway", "{}:{} cannot be reached: {}".format(*address, error))


def _is_complete(head: bytes) -> bool:
    return END_OF_HEAD in head or len(head) > LONGEST_HEAD


def _target(head: bytes) -> tuple[str, int] | None:
    """Return host and port of a CONNECT request, or None."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
    if len(words) != 3 or words[0] != "CONNECT" or not head.endswith(END_OF_HEAD):
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


def _proxy_authorization(head: bytes) -> str:
    fields = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return next((value for name, _, value in fields if name.lower() == "proxy-authorization"), "")


def _reply(transport: asyncio.Transport, status: str, text: str, *fields: str) -> None:
    body = f"{text}\n".encode()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *fields,
    )
    transport.write("\r\n".join(lines).encode("ascii", "backslashreplace") + b"\r\n\r\n" + body)
    transport.close()


# Repairs the HTTP framing that TensorFlow's curl sends, which strict parsers refuse.
#
# Its POST has `Transfer-Encoding: identity` beside Content-Length; its PUT has both `chunked` and
# Content-Length, where chunked wins (RFC 9112, 6.3).


class FramingRepair:
    """Follows one connection's requests and drops the wrong headers; bodies pass untouched."""

    def __init__(self) -> None:
        self._buffer = b""
        self._remaining = 0
        self._step: Callable[[], bytes | None] = self._head

    def feed(self, data: bytes) -> bytes:
        """Take the bytes received and return those to pass on."""
        if self._step == self._body and not self._buffer and len(data) <= self._remaining:
            self._remaining -= len(data)  # the bulk of an upload: not even copied
            return data
        self._buffer += data
        out = []
        while (piece := self._step()) is not None:
            out.append(piece)
        return b"".join(out)

    def _head(self) -> bytes | None:
        head = self._take_through(b"\r\n\r\n")
        if head is None:
            return self._give_up()
        head = _IDENTITY.sub(b"", head)
        if _UPGRADE.search(head):
            self._step = self._unread
            return head
        if _CHUNKED.search(head):
            self._step = self._chunk_size
            return _LENGTH.sub(b"", head)
        length = _LENGTH.search(head)
        if length is not None and int(length[1]):
            self._remaining, self._step = int(length[1]), self._body
        return head

    def _body(self) -> bytes | None:
        return self._pass_on(self._head)

    def _chunk(self) -> bytes | None:
        return self._pass_on(self._chunk_size)

    def _chunk_size(self) -> bytes | None:
        line = self._take_through(b"\r\n")
        if line is None:
            return self._give_up()
        match = _CHUNK_SIZE.match(line)
        size = int(match[0], 16) if match else 0
        if match is None:
            self._step = self._unread
        elif size:
            self._remaining, self._step = size + len(b"\r\n"), self._chunk
        else:
            self._step = self._trailer
        return line

    def _trailer(self) -> bytes | None:
        line = self._take_through(b"\r\n")
        if line == b"\r\n":
            self._step = self._head
        return line if line is not None else self._give_up()

    def _unread(self) -> bytes | None:
        rest, self._buffer = self._buffer, b""
        return rest or None

    def _give_up(self) -> bytes | None:
        if len(self._buffer) <= LONGEST_LINE:
            return None
        self._step = self._unread
        return self._unread()

    def _pass_on(self, then: Callable[[], bytes | None]) -> bytes | None:
        if not self._remaining:
            self._step = then
            return b""
        piece, self._buffer = self._buffer[: self._remaining], self._buffer[self._remaining :]
        self._remaining -= len(piece)
        return piece or None

    def _take_through(self, mark: bytes) -> bytes | None:
        at = self._buffer.find(mark)
        if at < 0:
            return None
        end = at + len(mark)
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return text


class RepairedFraming(asyncio.Protocol):
    """Stands between TLS and the protocol of an HTTP server; keeps early bytes until TLS is up."""

    def __init__(self, server: asyncio.Protocol, connections: Connections) -> None:
        self._server = server
        self._connections = connections
        self._repair = FramingRepair()
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self._transport)
        self._server.connection_made(transport)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:  # the request can come in one packet with the end of the handshake
            self._early += data
        elif repaired := self._repair.feed(data):
            self._server.data_received(repaired)

    def eof_received(self) -> bool | None:
        return self._server.eof_received() if self._transport is not None else None

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._connections.discard(self._transport)
            self._server.connection_lost(error)

    def pause_writing(self) -> None:
        self._server.pause_writing()

    def resume_writing(self) -> None:
        self._server.resume_writing()


TPU_API = "tpu.googleapis.com"

OUTSIDE: dict[str, dict[str, Route]] = {
    PASS: {},
    REFUSE: {"*": Refuse("outside the simulator, which was started with --egress refuse")},
}
"""Egress -> the routes of all other hosts."""


def google_routes(servers: WebServers, tpu_port: int, egress: str) -> dict[str, Route]:
    """Return the routes, once the HTTP servers run, by host name and in order."""
    storage = Serve(servers.protocol("storage"))
    refused = Refuse("the simulator has no such service")
    return {
        "storage.googleapis.com": storage,
        "www.googleapis.com": storage,
        "*.storage.googleapis.com": storage,
        TPU_API: Tunnel(LOOPBACK, tpu_port),
        "compute.googleapis.com": Serve(servers.protocol("compute_rest")),
        "cloudbilling.googleapis.com": Serve(servers.protocol("billing_rest")),
        "cloudquotas.googleapis.com": Serve(servers.protocol("quota_rest")),
        "tunnel.cloudproxy.app": Serve(servers.protocol("iap_relay")),
        "*.cloudproxy.app": refused,
        "*.googleapis.com": refused,
        "metadata.google.internal": refused,
        **OUTSIDE[egress],
    }
