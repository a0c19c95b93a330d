"""Who may talk to the simulator: its own user, and nobody's web page.

- Refuses bodies of the types that a web page may send anywhere without asking, where an API takes JSON.

  These are the types of https://fetch.spec.whatwg.org/#cors-safelisted-request-header. Google's APIs refuse
  them with these messages.
- Tells the requests of web pages from those of programs, by headers that a page cannot change.

  A browser runs as the simulator's user, so the user says nothing about it. The simulator serves no pages, so
  every request that a page made is a foreign one. A host name that an attacker owns can be made to resolve to
  127.0.0.1 (DNS rebinding): such a request looks like one of the same origin, and its Host gives it away.
- The secret of one simulator: what proves that a request is from its user, where nothing else does.
- Tells which user owns the other end of a TCP connection on loopback.

  NETLINK_SOCK_DIAG looks one socket up by its addresses in microseconds (man 7 sock_diag); /proc/net/tcp is
  read where a container forbids it. A socket that its process has closed has uid 0 and inode 0 in both: it is
  nobody's. macOS shows a user without root the connections of the user's own processes, which is enough.
- Decides at every door of the simulator who may come in: one rule for HTTP, gRPC, the proxy and SSH.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import os
import secrets
import socket
import struct
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from pathlib import Path
from weakref import WeakSet, WeakValueDictionary

from aiohttp import web
from multidict import MultiMapping

from tpuctl.sim.state import write_private

MESSAGES = {
    "application/x-www-form-urlencoded": "This API does not support parsing form-encoded input.",
    "multipart/form-data": "This API does not support parsing form-encoded input.",
    "text/plain": "Unsupported content with type: text/plain",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def json_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 400 to a body of such a type, before it is read; an empty body has no type."""
    message = MESSAGES.get(request.content_type) if request.can_read_body else None
    if message is None or "Content-Type" not in request.headers:
        return await handler(request)
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return web.json_response({"error": error}, status=400)


SERVED_DOMAINS = ("googleapis.com", "localhost")
"""Names below these, and they themselves, never resolve to this machine by an attacker's choice."""
SERVED_NAMES = ("metadata.google.internal", "tunnel.cloudproxy.app")
TUNNELLER = "bot:iap-tunneler"
"""The Origin of clients of IAP's relay; no page has an origin of this scheme."""


def page_refusal(headers: MultiMapping[str]) -> str:
    """Return why a request is refused before its body is read; '' for one that no page made."""
    for origin in headers.getall("Origin", ()):
        if origin != TUNNELLER:
            return f"it comes from a web page (Origin: {origin})"
    for site in headers.getall("Sec-Fetch-Site", ()):
        if site != "none":
            return f"it comes from a web page (Sec-Fetch-Site: {site})"
    for host in headers.getall("Host", ()):
        if not is_served(host):
            return f"the simulator is not called {host}"
    return ""


@lru_cache(256)
def is_served(host: str) -> bool:
    """Return whether a Host header names loopback or a name of Google's that the simulator serves."""
    name = _name_of(host).lower().removesuffix(".")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name in SERVED_NAMES or any(f".{name}".endswith(f".{domain}") for domain in SERVED_DOMAINS)


def _name_of(host: str) -> str:
    """Return the name without port and brackets; '' where the port is none."""
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        name = name if closed else ""
    else:
        name, _, rest = host.partition(":")
        rest = f":{rest}" if rest or host.endswith(":") else ""
    return name if not rest or (rest[0] == ":" and rest[1:].isdecimal()) else ""


class Secret:
    """Kept in a file (0600) and the same after a restart: programs on hosts and shells outlive one."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        self.text = path.read_text()

    def allows(self, authorization: str) -> bool:
        """Return whether an Authorization header has the secret, as Bearer or as the password of Basic."""
        scheme, _, value = authorization.strip().partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer":
            return self._is(value)
        if scheme.lower() == "basic":
            return self._is(_password(value))
        return False

    def _is(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self.text.encode())


def _password(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


Address = tuple[str, int]
OwnerOf = Callable[[Address, Address], int | None]
"""Client's and server's address of a connection -> uid of the client's process; None: it has closed it."""

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
UID_MAP = Path("/proc/self/uid_map")
TIMEOUT = 1.0
"""Seconds; the kernel answers within the call."""
EVERY_UID = ["0", "0", "4294967295"]

NOT_CONNECTED = {2, 6, 7, 10}
"""SYN_SENT, TIME_WAIT, CLOSE and LISTEN (include/net/tcp_states.h): no end of an established connection."""

_SOCK_DIAG_BY_FAMILY, _NLMSG_ERROR, _NLMSG_DONE, _NETLINK_SOCK_DIAG = 20, 2, 3, 4
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
_SOCKET_ID = struct.Struct("!HH16s16s12s")  # inet_diag_sockid: ports, addresses, interface and cookie
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ANSWER = struct.Struct("=BBBB48s12xII")  # inet_diag_msg: family, state, -, -, sockid, -, uid, inode


CONNECTED = 0xFFFFFFFF & ~sum(1 << state for state in NOT_CONNECTED)
"""The states of sockets that a program may have open, as a mask: most on a busy machine are in TIME_WAIT."""
_DUMP_SIZE = 1 << 16


def sockets(port: int = 0) -> list[tuple[Address, str]]:
    """Return own end and inode of the connected TCP sockets of this machine, or of those at a port.

    The kernel's dump takes a twentieth of the time of its tables in /proc. Linux alone.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(TIMEOUT)
            families = (socket.AF_INET, socket.AF_INET6)
            return [end for family in families for end in _dump(netlink, family, port)]
    except OSError:  # a container forbids it, or a kernel without IPv6
        return [end for end in _table_rows() if port in (0, end[0][1])]


def _dump(netlink: socket.socket, family: socket.AddressFamily, port: int) -> Iterator[tuple[Address, str]]:
    """Yield own end and inode of each connected socket of a family; raises OSError."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, CONNECTED)
    request += _SOCKET_ID.pack(port, 0, bytes(16), bytes(16), _ANY_COOKIE)
    flags = _NLM_F_REQUEST | _NLM_F_DUMP
    netlink.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, flags, 0, 0) + request)
    while True:
        messages, start = netlink.recv(_DUMP_SIZE), 0
        while start < len(messages):
            length, kind, *_ = _HEADER.unpack_from(messages, start)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                raise OSError("the kernel lists no sockets")
            _, _, _, _, socket_id, _, inode = _ANSWER.unpack_from(messages, start + _HEADER.size)
            if inode:
                host = socket.inet_ntop(family, socket_id[4 : 8 if family == socket.AF_INET else 20])
                yield plain((host, int.from_bytes(socket_id[:2], "big"))), str(inode)
            start += (length + 3) & ~3


def _table_rows() -> Iterator[tuple[Address, str]]:
    """Yield own end and inode of each connected socket in the kernel's tables."""
    text = "".join(table.read_text() for table in TABLES if table.exists())
    for row in map(str.split, text.splitlines()):
        if row[0] != "sl" and int(row[3], 16) not in NOT_CONNECTED and row[9] != "0":
            yield _end(row[1]), row[9]


def system_owner() -> OwnerOf | None:
    """Return the fastest way to look owners up that works on this system; None where there is none."""
    by_number = sys.platform.startswith("linux") and not _is_anonymous()
    for lookup in (*((SockDiag, Tables) if by_number else ()), OwnProcesses):
        try:
            owner: OwnerOf = lookup()
            if _tells_own(owner):
                return owner
        except OSError:
            continue
    return None


def plain(address: tuple[object, ...]) -> Address:
    """Return address and port of a socket's name; IPv4 in IPv6 becomes IPv4."""
    host = ipaddress.ip_address(str(address[0]).partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host), int(str(address[1]))


class SockDiag:
    """Asks the kernel for one socket at a time; an instance serves one event loop."""

    def __init__(self) -> None:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
        weakref.finalize(self, self._netlink.close)  # opening one a connection would take ten times as long
        self._netlink.settimeout(TIMEOUT)
        self._sequence = 0

    def __call__(self, client: Address, server: Address) -> int | None:
        """Return the uid of the process at the client's end; None when it has closed it. Raises OSError."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + _socket_id(
            family, client, server
        )
        length = _HEADER.size + len(request)
        head = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0)
        self._netlink.sendto(head + request, (0, 0))
        while True:
            message = self._netlink.recv(4096)
            _, kind, _, sequence, _ = _HEADER.unpack_from(message)
            if sequence == self._sequence:
                return None if kind == _NLMSG_ERROR else _owner(message, client[1], server[1])


def _socket_id(family: socket.AddressFamily, client: Address, server: Address) -> bytes:
    addresses = [socket.inet_pton(family, address).ljust(16, b"\0") for address, _ in (client, server)]
    return _SOCKET_ID.pack(client[1], server[1], *addresses, _ANY_COOKIE)


def _owner(message: bytes, client_port: int, server_port: int) -> int | None:
    _, state, _, _, socket_id, uid, inode = _ANSWER.unpack_from(message, _HEADER.size)
    ports = struct.unpack_from("!HH", socket_id)
    if ports != (client_port, server_port) or state in NOT_CONNECTED or not inode:
        return None
    return int(uid)


class Tables:
    """Reads the tables of all sockets, which takes milliseconds where there are many."""

    def __call__(self, client: Address, server: Address) -> int | None:
        """Return the uid of the process at the client's end; None when it has closed it. Raises OSError."""
        text = "".join(table.read_text() for table in TABLES if table.exists())  # a kernel may lack IPv6
        ports = f":{client[1]:04X}", f":{server[1]:04X}"
        for line in text.splitlines():
            if ports[0] not in line or ports[1] not in line:
                continue
            row = line.split()
            if (_end(row[1]), _end(row[2])) == (client, server) and int(row[3], 16) not in NOT_CONNECTED:
                return int(row[7]) if row[9] != "0" else None
        return None


class OwnProcesses:
    """Looks through the connections of this user's processes, which takes milliseconds."""

    def __call__(self, client: Address, server: Address) -> int | None:
        """Return this user's uid if one of the user's processes is the client, else None."""
        import psutil  # noqa: PLC0415  Linux does without

        for process in psutil.process_iter():
            try:
                connections = (
                    process.net_connections("tcp") if process.uids().effective == os.geteuid() else ()
                )
            except psutil.Error:  # it has ended, or is of another user
                continue
            for connection in connections:
                if connection.raddr and (plain(connection.laddr), plain(connection.raddr)) == (
                    client,
                    server,
                ):
                    return os.geteuid()
        return None


def _end(hexadecimal: str) -> Address:
    """Read `0100007F:1F90`: words of 32 bits, each in the machine's byte order."""
    host, _, port = hexadecimal.partition(":")
    words = [int(host[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(host), 8)]
    return plain((str(ipaddress.ip_address(b"".join(words))), int(port, 16)))


def _is_anonymous() -> bool:
    """Return whether other users may look like this one: as `nobody` of a container."""
    try:
        return os.geteuid() == int(OVERFLOW_UID.read_text()) and UID_MAP.read_text().split() != EVERY_UID
    except OSError:
        return False


def _tells_own(owner: OwnerOf) -> bool:
    """Return whether `owner` is right about a connection of this process to itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = plain(listener.getsockname())
        with socket.create_connection(server) as client:
            return owner(plain(client.getsockname()), server) == os.geteuid()


FOREIGN = "the simulator is for the user who started it alone"
ROOT = 0


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
