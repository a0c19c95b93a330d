"""Listens on ports of this machine, on loopback alone."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from tpuctl.errors import StateError, UsageError

FAMILIES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""How a machine says that it has no IPv6."""
LAST_PORT = 65535
PORTS = re.compile(r"(?:([0-9]{0,5}):)?([0-9]{1,5})")


@dataclass(frozen=True)
class PortPair:
    """A port of this machine, 0 for any that is free, and the port of the host that it stands for."""

    local: int
    remote: int


def is_port(text: str) -> bool:
    """Whether a word means ports, and not a node: a node's name begins with a letter and has no colon."""
    return text[:1].isdigit() or ":" in text


def parse_ports(text: str) -> PortPair:
    """Return what `6006`, `16006:6006` or `:6006` (any free port) means; raises UsageError for other text."""
    match = PORTS.fullmatch(text)
    remote = int(match[2]) if match else 0
    local = int(match[1] or 0) if match and match[1] is not None else remote
    if not 0 < remote <= LAST_PORT or local > LAST_PORT:
        raise UsageError(
            f"'{text}' names no port.",
            hint="Write PORT or LOCAL:REMOTE, such as 6006 or 16006:6006; ':6006' takes any free port.",
        )
    return PortPair(local, remote)


@dataclass(frozen=True)
class Listener:
    """The sockets of one port."""

    ports: PortPair
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        """Stop listening."""
        for listening in self.sockets:
            listening.close()


def listen(pairs: Iterable[PortPair]) -> list[Listener]:
    """Listen on all local ports or on none, on equal pairs once; raises StateError for one that is taken."""
    with ExitStack() as opened:
        listeners = []
        for pair in dict.fromkeys(pairs):
            listeners.append(_listen(pair))
            opened.callback(listeners[-1].close)
        opened.pop_all()
    return listeners


def _listen(pair: PortPair) -> Listener:
    sockets: list[socket.socket] = []
    port = pair.local
    try:
        for family, address in FAMILIES:
            try:
                sockets.append(socket.create_server((address, port), family=family, backlog=128))
            except OSError as error:
                if error.errno not in ABSENT or family is socket.AF_INET:
                    raise
            port = sockets[0].getsockname()[1]
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise _taken(pair, port, error) from error
    return Listener(PortPair(port, pair.remote), tuple(sockets))


def _taken(pair: PortPair, port: int, error: OSError) -> StateError:
    reason = (
        "is used by another program"
        if error.errno == errno.EADDRINUSE
        else f"cannot be used: {error.strerror}"
    )
    other = pair.remote + 10_000
    free = other if other <= LAST_PORT and other != port else ""  # without a number: any free port
    return StateError(
        f"Port {port} of this machine {reason}.",
        hint=f"Choose another one: {free}:{pair.remote}",
        port=port,
    )
