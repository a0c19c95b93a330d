"""Where the hosts' servers listen: always on loopback, one socket a server."""

from __future__ import annotations

import errno
import socket
import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tpuctl.sim.network.ports import LOOPBACK, Ports

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PROBE = "127.64.0.1"
SERVICES = ("ssh", "metadata")
BACKLOG = 128
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class Network:
    """Gives each host its own loopback address, or, where the system has only 127.0.0.1, a port of its own.

    With addresses of their own all hosts listen on the same port, as real ones do, unless another program
    has taken it. `aliases` None finds out which of the two the system can do. `ports` remembers all of them.
    """

    def __init__(self, ports: Ports, aliases: bool | None = None) -> None:
        self.aliases = has_aliases() if aliases is None else aliases
        self._ports = ports

    def listen(self, address: str, service: str) -> PromptListener:
        """Return a listening socket for one of the `SERVICES` of the host at `address`."""
        own = _own(address, service)
        if not self.aliases:
            return self._ports.listen(own, partial(_bound, LOOPBACK))
        if not self._ports.known(own):
            shared = self._shared(address, service)
            if shared is not None:
                return shared
        return self._ports.listen(own, partial(_bound, address))

    def leave(self, address: str) -> None:
        """Forget the ports of a host that will not come back."""
        for service in SERVICES:
            self._ports.forget(_own(address, service))

    def _shared(self, address: str, service: str) -> PromptListener | None:
        """Listen on the port of all hosts, which the first one chose; None when another program has it."""
        if not self._ports.known(service):
            return self._ports.listen(service, partial(_bound, address))
        try:
            return _bound(address, self._ports.port(service))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None


class PromptListener(socket.socket):
    """A listening socket whose connections answer without delay, or not at all while it is `mute`."""

    def __init__(self, *arguments: int) -> None:
        super().__init__(*arguments)
        self._mute = False
        self._unheard: list[socket.socket] = []
        self._connections: weakref.WeakSet[PromptConnection] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, object]:
        """Return the next connection; those that come while it is mute are kept, and hear nothing."""
        plain, peer = super().accept()
        while self._mute:
            self._unheard.append(plain)
            plain, peer = super().accept()
        connection = PromptConnection(plain.family, plain.type, plain.proto, fileno=plain.detach())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.add(connection)
        return connection, peer

    def mute(self) -> None:
        """Let nothing out any more."""
        self._set_mute(mute=True)

    def unmute(self) -> None:
        """Answer again; those that came meanwhile are cut, to try again."""
        self._set_mute(mute=False)
        self._drop_unheard()

    def close(self) -> None:
        """Close it, and the connections that nobody has heard."""
        self._drop_unheard()
        super().close()

    def _set_mute(self, *, mute: bool) -> None:
        self._mute = mute
        for connection in self._connections:
            connection.mute = mute

    def _drop_unheard(self) -> None:
        for plain in self._unheard:
            plain.close()
        self._unheard.clear()


class PromptConnection(socket.socket):
    """A connection that acknowledges every read at once.

    SSH clients that leave Nagle's algorithm on (paramiko; OpenSSH without a pty) hold back each small
    packet until the one before it is acknowledged, and Linux delays that by 40 ms, several times a
    connection. TCP_QUICKACK lasts for one acknowledgement only, so it is armed again after each read. In a
    subclass of the socket this touches these connections alone.
    """

    mute = False
    """Whether what is sent is lost on the way."""

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        return memoryview(data).nbytes if self.mute else super().send(data, flags)

    def sendmsg(self, buffers: Iterable[ReadableBuffer], *rest: Any) -> int:
        """What newer versions of asyncio send by."""
        kept = list(buffers)
        return sum(memoryview(one).nbytes for one in kept) if self.mute else super().sendmsg(kept, *rest)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        if QUICK_ACK is not None:
            self.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return data


def has_aliases() -> bool:
    """Return whether hosts can have addresses: Linux owns all of 127.0.0.0/8, macOS only 127.0.0.1."""
    try:
        _bound(PROBE, 0).close()
    except OSError:
        return False
    return True


def _own(address: str, service: str) -> str:
    return f"{service} of {address}"


def _bound(address: str, port: int) -> PromptListener:
    """Return a socket that listens already: until then another could take the port that this one has."""
    listener = PromptListener(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
