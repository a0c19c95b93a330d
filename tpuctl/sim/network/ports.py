"""Chooses the ports of the simulator's servers: the same after a restart, so that clients find them."""

from __future__ import annotations

import errno
import json
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tpuctl.sim.state.private_file import write_private

LOOPBACK = "127.0.0.1"

CANDIDATES = range(20_000, 30_000)
"""New ports are taken from these: below those that Linux (from 32768) and macOS (from 49152) give to clients,
of which any may be in use at the moment of a restart."""
TRIES = 50

Listener = TypeVar("Listener", bound=socket.socket)


class Ports:
    """A port for each server by name, in a JSON file: the one it had before, where that is free."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports = _load(path)
        self._saved = dict(self._ports)

    def listen(self, name: str, bind: Callable[[int], Listener]) -> Listener:
        """Return the socket that `bind` makes for the first free candidate; raises OSError."""
        for port in self.candidates(name):
            try:
                listener = bind(port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and port:
                    continue
                raise
            self.note(name, listener.getsockname()[1])
            return listener
        raise AssertionError("port 0 is a free one")

    async def start(self, name: str, start: Callable[[int], Awaitable[int]]) -> int:
        """Start a server that binds by itself: `start` takes a port and returns the real one."""
        for port in self.candidates(name):
            try:
                self.note(name, await start(port))
            except (OSError, RuntimeError):  # gRPC raises RuntimeError for a port in use
                if not port:
                    raise
            else:
                break
        return self.port(name)

    def candidates(self, name: str) -> Iterator[int]:
        """Yield the ports to try for a server, best first; the last is 0, the system's choice."""
        if name in self._ports:
            yield self._ports[name]
        for _ in range(TRIES):
            yield random.choice(CANDIDATES)  # noqa: S311  no secret
        yield 0

    def known(self, name: str) -> bool:
        """Return whether this server has had a port."""
        return name in self._ports

    def port(self, name: str) -> int:
        """Return the port that this server had last; raises KeyError."""
        return self._ports[name]

    def note(self, name: str, port: int) -> None:
        """Remember where a server listens."""
        self._ports[name] = port

    def forget(self, name: str) -> None:
        """Forget a server that will not come back."""
        self._ports.pop(name, None)

    def save(self) -> None:
        """Write the file, if there are changes."""
        if self._ports != self._saved:
            write_private(self._path, json.dumps(self._ports, indent=1).encode())
            self._saved = dict(self._ports)


def _load(path: Path) -> dict[str, int]:
    try:
        ports: dict[str, int] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return ports


def bound(address: str, port: int) -> socket.socket:
    """Return a socket that listens, for a server that takes one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
