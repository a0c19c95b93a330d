"""Opens the sockets of the hosts' servers: always on loopback, one socket a server.

- Creates the folder of a simulated host: its home, tmp, devices, keys and guest attributes.
- Simulates network loss: holds up and cuts connections of programs, found in /proc.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import secrets
import shutil
import socket
import struct
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh

from tpuctl.sim.access import Guard, sockets
from tpuctl.sim.hosts.connections import can_tell, sockets_of
from tpuctl.sim.hosts.metadata.server import GuestAttributes
from tpuctl.sim.hosts.programs.own_ports import HostPorts, OwnPorts
from tpuctl.sim.hosts.programs.processes import belonging, snapshot
from tpuctl.sim.network.tunnels import LOOPBACK, Ports
from tpuctl.sim.records import Host
from tpuctl.sim.state import write_private

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


HOST_KEY = "ssh_host_ed25519_key"
GUEST_ATTRIBUTES = "guest.json"
ACCESS_TOKEN = "access_token"  # noqa: S105  the name of a file


class HostDisk:
    """One host's folder; it outlives a restart of the simulator and a stop of the node."""

    def __init__(self, pool: Path, host: Host) -> None:
        self.folder = pool / host.node_uid / f"w{host.worker}"
        self.home = self.folder / "home"
        self.tmp = self.folder / "tmp"
        self.python = self.folder / "python"
        self.view = self.folder / "root"
        """Stands for the root of its file system where a program looks for what the host has of its own."""
        self.etc_hosts = self.folder / "etc-hosts"
        self.access_token = self.folder / ACCESS_TOKEN
        self.guest = GuestAttributes(self.folder / GUEST_ATTRIBUTES)

    def exists(self) -> bool:
        """Return whether the host has been started before."""
        return (self.folder / HOST_KEY).exists()

    def prepare(self) -> None:
        """Create what is missing, readable by this user alone."""
        for folder in (self.folder.parent, self.folder, self.home, self.tmp, self.view):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.view / "tmp").is_symlink():
            (self.view / "tmp").symlink_to(Path("..", self.tmp.name))

    def create_devices(self, names: Iterable[str]) -> list[Path]:
        """Create device files, such as /dev/accel0, as files of the host; return where they are."""
        paths = [self.view / name.lstrip("/") for name in names]
        for path in paths:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.touch(mode=0o666)
        return paths

    def write_etc_hosts(self, text: str) -> None:
        """Write /etc/hosts in place: programs that are up see it through a mount of this very file."""
        self.etc_hosts.write_text(text)
        self.etc_hosts.chmod(0o644)

    def host_key(self) -> asyncssh.SSHKey:
        """Return the host's private key; the first call makes it."""
        path = self.folder / HOST_KEY
        try:
            return asyncssh.import_private_key(path.read_bytes())
        except FileNotFoundError:
            key = asyncssh.generate_private_key("ssh-ed25519")
            write_private(path, key.export_private_key())
            return key

    def delete(self) -> None:
        """Delete everything, the node's folder with its last host."""
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.folder.parent.rmdir()
        except OSError:  # it holds other hosts of the node
            pass


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
