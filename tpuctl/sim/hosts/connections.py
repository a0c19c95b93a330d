"""Finds the simulated host whose program has the other end of a connection, in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Lock
from typing import TypeVar

from tpuctl.sim.access import plain, sockets
from tpuctl.sim.hosts.programs.processes import PROC, ProcessEntry, snapshot

Key = TypeVar("Key")

SOCKET = "socket:["
TABLES = ("net/tcp", "net/tcp6")
MOST_PROGRAMS = 8
"""Programs of hosts that are looked at first: one that opens a connection a request is found at once."""
MOST_CONNECTIONS = 1024
"""Connections whose host is remembered; it takes a look at every process to find it."""


def can_tell() -> bool:
    """Return whether this system tells whose a connection is."""
    return (PROC / TABLES[0]).exists()


class ConnectionOwners:
    """Finds the host, among those whose marks begin with `prefix`, whose program has a connection.

    Remembers connections by the inodes of their sockets, which no other socket gets, and the programs of
    hosts that had the last ones by their start times: a process of a host stays one whatever it executes.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._connections: dict[frozenset[str], str] = {}
        self._programs: dict[tuple[int, bytes], str] = {}
        self._lock = Lock()

    def mark_at(self, address: tuple[str, int]) -> str | None:
        """Return the mark of the host whose program is at an address.

        '' for a program of no host, None if no process has the connection, such as after it was closed.
        """
        end = plain(address)
        inodes = frozenset(inode for own_end, inode in sockets(end[1]) if own_end == end)
        if not inodes:
            return None
        with self._lock:
            mark = self._connections.get(inodes)
            if mark is None:
                mark = self._recent(inodes)
            if mark is None:
                mark = self._search(inodes)
            if mark is not None:
                _remember(self._connections, inodes, mark, MOST_CONNECTIONS)
            return mark

    def _recent(self, inodes: frozenset[str]) -> str | None:
        """Return the mark of the program, among the last ones of hosts, that has one of the sockets."""
        for program, mark in reversed(list(self._programs.items())):
            pid, start = program
            if start_of(pid) != start:
                del self._programs[program]
            elif not inodes.isdisjoint(sockets_of(pid)):
                return mark
        return None

    def _search(self, inodes: frozenset[str]) -> str | None:
        """Look at the processes of hosts, then at all others, the newest first."""
        table = {entry.pid: entry for entry in snapshot()}
        marks = {pid: _mark(entry, table, self._prefix) for pid, entry in table.items()}
        for pid in sorted(marks, key=lambda pid: (not marks[pid], -pid)):
            start = start_of(pid)
            if not inodes.isdisjoint(sockets_of(pid)):
                if marks[pid] and start:
                    _remember(self._programs, (pid, start), marks[pid], MOST_PROGRAMS)
                return marks[pid]
        return None


def _remember(table: dict[Key, str], key: Key, mark: str, most: int) -> None:
    """Add a row; the oldest make room."""
    table[key] = mark
    while len(table) > most:
        del table[next(iter(table))]


def start_of(pid: int) -> bytes:
    """Return when a process started, in ticks since the machine did; nothing for one that has ended."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[19]
    except OSError:
        return b""


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


def sockets_of(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open."""
    folder = f"{PROC}/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # it has ended
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith(SOCKET):
            yield target[len(SOCKET) : -1]
