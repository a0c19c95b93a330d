"""Where the hosts' servers listen: always on loopback, one socket a server."""

from __future__ import annotations

import errno
import socket

LOOPBACK = "127.0.0.1"
PROBE = "127.64.0.1"
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class Network:
    """Gives each host its own loopback address, or, where the system has only 127.0.0.1, a port of its own.

    With addresses of their own all hosts listen on the same port, as real ones do, unless another program
    has taken it. `aliases` None finds out which of the two the system can do.
    """

    def __init__(self, aliases: bool | None = None) -> None:
        self.aliases = _has_aliases() if aliases is None else aliases
        self._ports: dict[str, int] = {}

    def listen(self, address: str, service: str) -> PromptListener:
        """Return a socket for `service` (a name such as `ssh`) of the host at `address`, bound."""
        if not self.aliases:
            return _bound(LOOPBACK, 0)
        try:
            listener = _bound(address, self._ports.get(service, 0))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return _bound(address, 0)
        self._ports.setdefault(service, listener.getsockname()[1])
        return listener


class PromptListener(socket.socket):
    """A listening socket whose connections answer without delay."""

    def accept(self) -> tuple[socket.socket, object]:
        plain, peer = super().accept()
        connection = _PromptConnection(plain.family, plain.type, plain.proto, fileno=plain.detach())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, peer


class _PromptConnection(socket.socket):
    """A connection that acknowledges every read at once.

    SSH clients that leave Nagle's algorithm on (paramiko; OpenSSH without a pty) hold back each small
    packet until the one before it is acknowledged, and Linux delays that by 40 ms, several times a
    connection. TCP_QUICKACK lasts for one acknowledgement only, so it is armed again after each read. In a
    subclass of the socket this touches these connections alone.
    """

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        if QUICK_ACK is not None:
            self.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return data


def _bound(address: str, port: int) -> PromptListener:
    listener = PromptListener(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _has_aliases() -> bool:
    """Linux owns all of 127.0.0.0/8; macOS and the BSDs only 127.0.0.1."""
    try:
        _bound(PROBE, 0).close()
    except OSError:
        return False
    return True
