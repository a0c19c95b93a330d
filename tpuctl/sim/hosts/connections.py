"""Finds the simulated host whose program has the other end of a connection, in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tpuctl.sim.hosts.programs.processes import PROC, ProcessEntry, snapshot

SOCKET = "socket:["
TABLES = ("net/tcp", "net/tcp6")
LISTENS = "0A"
"""State of a socket that listens, in the tables."""


def can_tell() -> bool:
    """Return whether this system tells whose a connection is."""
    return (PROC / TABLES[0]).exists()


def host_mark_of(address: tuple[str, int], prefix: str) -> str | None:
    """Return the mark of the host, among those that begin with `prefix`, whose program is at `address`.

    '' for a program of no host, None if no process has the connection, such as after it was closed.
    """
    inodes = set(_inodes_at(address))
    table = {entry.pid: entry for entry in snapshot()}
    owners = [entry for entry in table.values() if inodes & set(sockets_of(entry.pid))] if inodes else []
    if not owners:
        return None
    return next((mark for owner in owners if (mark := _mark(owner, table, prefix))), "")


def _mark(entry: ProcessEntry, table: dict[int, ProcessEntry], prefix: str) -> str:
    """Return the mark of a process, or of the processes that it descends from or whose session it is in."""
    pending, visited = [entry.pid], set[int]()
    while pending:
        pid = pending.pop()
        if pid in visited or pid not in table:
            continue
        visited.add(pid)
        related = table[pid]
        if related.mark.startswith(prefix):
            return related.mark
        pending += [related.session, related.group, related.parent]
    return ""


def _inodes_at(address: tuple[str, int]) -> Iterator[str]:
    """Yield the inodes of the connected sockets whose own end is at an address of IPv4, mapped or not."""
    host, port = address[0].rpartition(":")[2], address[1]
    packed = bytes(map(int, host.split("."))) if host.count(".") == 3 else b""
    own_end = f"{packed[::-1].hex().upper()}:{port:04X}"
    for table in TABLES:
        path: Path = PROC / table
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            columns = line.split()
            if columns[1].endswith(own_end) and columns[3] != LISTENS and columns[9] != "0":
                yield columns[9]


def sockets_of(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open."""
    folder = PROC / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except OSError:  # it has ended
        return
    for name in names:
        try:
            target = os.readlink(folder / name)
        except OSError:
            continue
        if target.startswith(SOCKET):
            yield target[len(SOCKET) : -1]
