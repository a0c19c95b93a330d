"""Opens the sockets of the hosts' servers: always on loopback, one socket a server."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import secrets
import socket
import struct
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tpuctl.sim.access.guard import Guard
from tpuctl.sim.hosts.programs.own_ports import HostPorts, OwnPorts
from tpuctl.sim.network.ports import LOOPBACK, Ports

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Address = tuple[str, int]

PROBE = "127.64.0.1"
HTTP_PORT = 80
METADATA_ADDRESSES = ipaddress.IPv4Network("127.192.0.0/10")
"""The addresses of hosts are below: two simulators give out the same ones."""
TRIES = 3
SERVICES = ("ssh", "metadata")
BACKLOG = 128
NO_LINGER = struct.pack("ii", 1, 0)
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class Network:
    """Gives each host a loopback address of its own or, where the system has only 127.0.0.1, its own port.

    With `aliases` (addresses of their own) all hosts listen on one port, as real ones do, unless another
    program has taken it there; None means where the system can. `ports` remembers the ports.
    `is_of_a_host` tells whether a connection's other end is a program on a simulated host, `admits_ssh`
    whether the firewall of a project lets SSH from outside in.
    """

    def __init__(
        self,
        ports: Ports,
        guard: Guard,
        aliases: bool | None = None,
        is_of_a_host: Callable[[Address], bool] = lambda _: False,
        admits_ssh: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.aliases = has_aliases() if aliases is None else aliases
        self._ports = ports
        self._guard = guard
        self._is_of_a_host = is_of_a_host
        self.admits_ssh = admits_ssh
        self._own_ports = OwnPorts()
        self._own_ends: set[Address] = set()

    def listen(self, address: str, service: str) -> HostListener:
        """Return a listening socket for one of the `SERVICES` of the host at `address`."""
        own = _own(address, service)
        if not self.aliases:
            return self._ports.listen(own, partial(_bound, LOOPBACK, self._guard))
        if not self._ports.known(own):
            shared = self._shared(address, service)
            if shared is not None:
                return shared
        return self._ports.listen(own, partial(_bound, address, self._guard))

    def ports_of(self, address: str) -> HostPorts | None:
        """Return what gives a host's programs ports of their own; None where hosts share the machine's.

        Blocks for a moment.
        """
        return self._own_ports.host(address) if self.aliases else None

    def close(self) -> None:
        """Forget the hosts; their programs keep their ports."""
        self._own_ports.close()

    def listen_as_metadata_server(self) -> HostListener | None:
        """Listen on port 80 of a free address of loopback; None where this user may not, or all are taken."""
        for _ in range(TRIES if self.aliases else 0):
            address = str(METADATA_ADDRESSES[secrets.randbelow(METADATA_ADDRESSES.num_addresses)])
            try:
                return _bound(address, self._guard, HTTP_PORT)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    return None
        return None

    async def connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host from inside the network, as IAP does; raises OSError."""
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        own_end: Address | None = None
        try:
            connection.setblocking(False)
            connection.bind((LOOPBACK, 0))
            own_end = connection.getsockname()
            self._own_ends.add(own_end)  # before the host accepts
            await asyncio.get_running_loop().sock_connect(connection, address)
            return await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            self._own_ends.discard(own_end)
            raise

    def is_inside(self, address: Address) -> bool:
        """Return whether a connection from an address comes from inside the network; each is asked once."""
        if address in self._own_ends:
            self._own_ends.discard(address)
            return True
        return self._is_of_a_host(address)

    def forget(self, address: str) -> None:
        """Forget the ports of a host that will not come back."""
        for service in SERVICES:
            self._ports.forget(_own(address, service))

    def _shared(self, address: str, service: str) -> HostListener | None:
        """Listen on the port that all hosts share; None when another program has it at this address."""
        if not self._ports.known(service):
            return self._ports.listen(service, partial(_bound, address, self._guard))
        try:
            return _bound(address, self._guard, self._ports.port(service))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None


class HostListener(socket.socket):
    """A listening socket whose connections have no delay, and answer nothing while it is muted.

    What `guard` calls foreign is closed at once. What `admits` does not admit, by its address, is reset.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.admits: Callable[[Address], bool] = lambda _: True
        self._guard = guard
        self._mute = False
        self._ignored: list[socket.socket] = []
        self._connections: weakref.WeakSet[HostConnection] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, object]:
        """Return the next connection; those that come while it is muted stay open without an answer."""
        plain, peer = self._accept_trusted()
        while self._mute:
            self._ignored.append(plain)
            plain, peer = self._accept_trusted()
        connection = HostConnection(plain.family, plain.type, plain.proto, fileno=plain.detach())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.add(connection)
        return connection, peer

    def mute(self) -> None:
        """Send nothing from now on."""
        self._set_mute(mute=True)

    def unmute(self) -> None:
        """Answer again; connections that came while it was muted are closed, so that clients retry."""
        self._set_mute(mute=False)
        self._close_ignored()

    def close(self) -> None:
        """Close it, and the connections that got no answer."""
        self._close_ignored()
        super().close()

    def _accept_trusted(self) -> tuple[socket.socket, object]:
        while True:
            plain, peer = super().accept()
            if not self._guard.is_foreign(plain):
                if self.admits(peer):
                    return plain, peer
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)  # a reset, no orderly end
            plain.close()

    def _set_mute(self, *, mute: bool) -> None:
        self._mute = mute
        for connection in self._connections:
            connection.mute = mute

    def _close_ignored(self) -> None:
        for plain in self._ignored:
            plain.close()
        self._ignored.clear()


class HostConnection(socket.socket):
    """A connection of a host's server, which acknowledges every read at once.

    SSH clients that leave Nagle's algorithm on (paramiko; OpenSSH without a pty) hold back each small
    packet until the one before it is acknowledged, and Linux delays that by 40 ms, several times a
    connection. TCP_QUICKACK lasts for one acknowledgement only, so it is set again after each read. A
    subclass of socket changes these connections alone.
    """

    mute = False
    """Whether sent data is dropped."""

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        return memoryview(data).nbytes if self.mute else super().send(data, flags)

    def sendmsg(self, buffers: Iterable[ReadableBuffer], *options: Any) -> int:
        """Send, as newer versions of asyncio do it; `options` are those of socket.sendmsg."""
        data = list(buffers)
        if self.mute:
            return sum(memoryview(buffer).nbytes for buffer in data)
        return super().sendmsg(data, *options)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        if QUICK_ACK is not None:
            self.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return data


def has_aliases() -> bool:
    """Return whether each host can have an address: Linux has all of 127.0.0.0/8, macOS 127.0.0.1."""
    try:
        socket.create_server((PROBE, 0)).close()
    except OSError:
        return False
    return True


def _own(address: str, service: str) -> str:
    return f"{service} of {address}"


def _bound(address: str, guard: Guard, port: int) -> HostListener:
    """Return a listening socket; one that is only bound could lose its port to another."""
    listener = HostListener(guard)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
