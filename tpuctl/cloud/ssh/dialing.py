"""Opens the stream of bytes to a worker's port 22."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Protocol

from tpuctl.nodes import Node

CONNECT_TIMEOUT = 20.0
"""Seconds for each step of a connection: reaching the host, the key exchange, the login."""
LOST_AFTER = 60
"""Seconds without an acknowledgement after which a connection counts as lost: the laptop slept, or the
network changed."""


class ByteStream(Protocol):
    """An open stream to an SSH server: a socket, or a tunnel that has a socket's methods.

    A call that waits longer than the timeout raises TimeoutError; one on a lost stream OSError.
    """

    def send(self, data: bytes, /) -> int:
        """Send some of the bytes and return how many."""

    def recv(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end of the stream."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the seconds after which `send` and `recv` give up; None for never."""

    def shutdown(self, how: int, /) -> None:
        """Say that no more is sent, read, or both, as `socket.SHUT_RDWR`."""

    def close(self) -> None:
        """Close the stream; a `recv` in another thread ends."""


class Dial(Protocol):
    """Opens the stream to a worker of a node."""

    def __call__(self, node: Node, worker: int, /) -> ByteStream:
        """Return the open stream; raises HostError, or OSError with a sentence."""


def dial_address(host: str, port: int) -> socket.socket:
    """Return a TCP connection; raises OSError."""
    connection = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT)
    # Small packets at once: paramiko leaves Nagle on, which with delayed ACKs costs 40 ms a request.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in LIMITS:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def _limits() -> Iterator[tuple[int, int]]:
    """Yield the options of TCP, with their values, that this system has for the loss of a connection."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux, in milliseconds
        yield socket.TCP_USER_TIMEOUT, 1000 * LOST_AFTER
    if hasattr(socket, "TCP_RXT_CONNDROPTIME"):  # macOS, in seconds
        yield socket.TCP_RXT_CONNDROPTIME, LOST_AFTER


LIMITS = tuple(_limits())
