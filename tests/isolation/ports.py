"""Ports for tests: free for a while, refusing, and those on which this process listens."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

APART = range(10_000, 20_000)
"""Ports for tests that need them free for a while: other simulators and the kernel give out others."""


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on, and nobody else is given meanwhile."""
    while True:
        port = random.choice(APART)
        try:
            socket.create_server((address, port)).close()
        except OSError:
            continue
        return port


@contextmanager
def refusing_port(address: str = "127.0.0.1") -> Iterator[int]:
    """Have a port that nobody listens on, and nobody else can get, while the block runs."""
    with socket.socket() as silent:
        silent.bind((address, 0))
        yield int(silent.getsockname()[1])


def listens(address: tuple[str, int]) -> bool:
    """Return whether this process listens there; another one may be given the port once it does not."""
    own = psutil.Process().net_connections(kind="tcp")
    return any(item.laddr == address and item.status == psutil.CONN_LISTEN for item in own)
