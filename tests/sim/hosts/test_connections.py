"""Whose a connection is: a host's program, also a hidden one, another program, or nobody's."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.isolation.ports import APART
from tpuctl.polling import poll
from tpuctl.sim.hosts import connections
from tpuctl.sim.hosts.connections import ConnectionOwners, can_tell
from tpuctl.sim.hosts.programs.processes import MARK

pytestmark = pytest.mark.skipif(not can_tell(), reason="this system does not tell whose a connection is")

PREFIX = "world-"
CLIENT = """
import socket, subprocess, sys
if "hidden" in sys.argv:
    child = [sys.executable, "-c", sys.argv[3], sys.argv[1], "child", sys.argv[3]]
    sys.exit(subprocess.run(child, env={}, start_new_session=True).returncode)
while line := sys.stdin.readline():
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), source_address=("", int(line)))
"""
"""Connects anew from each port that it reads, 0 for any, and closes the connection before."""


class Program:
    """A program that connects when it is told to."""

    def __init__(self, mark: str, way: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(60)
        port = str(self.listener.getsockname()[1])
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CLIENT, port, way, CLIENT],
            stdin=subprocess.PIPE,
            env={MARK: mark} if mark else {},
        )

    def connect(self, port: int = 0) -> socket.socket:
        """Return the server's end of a new connection, from a port."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % port)
        self.process.stdin.flush()
        return self.listener.accept()[0]


@contextmanager
def program(mark: str, way: str = "plain") -> Iterator[Program]:
    """Run a program for the block."""
    running = Program(mark, way)
    with closing(running.listener), running.process:
        yield running


@pytest.mark.parametrize(
    ("mark", "way", "expected"),
    [
        ("world-a-0", "plain", "world-a-0"),
        ("world-a-0", "hidden", "world-a-0"),
        ("other-a-0", "plain", ""),
        ("", "plain", ""),
    ],
)
def test_each_connection_of_a_program_has_the_same_owner(mark: str, way: str, expected: str) -> None:
    owners = ConnectionOwners(PREFIX)
    with program(mark, way) as running:
        for _ in range(3):
            with running.connect() as connection:
                assert owners.mark_at(connection.getpeername()) == expected


def test_a_program_that_connects_again_is_found_without_a_look_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    snapshot = connections.snapshot
    monkeypatch.setattr(connections, "snapshot", lambda: looks.append(1) or snapshot())
    owners = ConnectionOwners(PREFIX)
    with program("world-a-0") as marked, program("") as plain:
        for _ in range(4):
            with marked.connect() as connection:
                assert owners.mark_at(connection.getpeername()) == "world-a-0"
        assert len(looks) == 1
        with plain.connect() as connection:
            assert [owners.mark_at(connection.getpeername()) for _ in range(4)] == [""] * 4
        assert len(looks) == 2, "a connection of another program is looked up once"


def test_a_closed_connection_is_nobodys_and_its_port_may_be_anothers_next() -> None:
    owners = ConnectionOwners(PREFIX)
    apart = random.choice(APART)  # no other process gets it for a connection meanwhile
    with program("world-a-0") as running, running.connect(apart) as connection:
        address = connection.getpeername()
        assert owners.mark_at(address) == "world-a-0"
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert connection.recv(1) == b""
        running.process.wait(60)
        assert owners.mark_at(address) is None
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            poll(lambda: _binds(own, address), awaiting="the kernel's reset of the connection", timeout=60)
            own.connect(running.listener.getsockname())
            assert owners.mark_at(address) == ""


def _binds(own: socket.socket, address: tuple[str, int]) -> bool | None:
    try:
        own.bind(address)
    except OSError:
        return None
    return True


def test_an_id_that_another_process_has_by_now_is_not_taken_for_the_hosts_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = ConnectionOwners(PREFIX)
    with program("world-a-0") as running:
        with running.connect() as connection:
            assert owners.mark_at(connection.getpeername()) == "world-a-0"
        (pid, start), mark = owners._programs.popitem()
        assert pid == running.process.pid
        owners._programs[os.getpid(), start] = mark
        with socket.create_connection(running.listener.getsockname()) as own:
            assert owners.mark_at(own.getsockname()) == ""
