"""The ports of servers: the same after a restart where they are free, else others."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuctl.sim.network.tunnels import Ports, bound


def binder(taken: set[int], error: int = errno.EADDRINUSE) -> Callable[[int], socket.socket]:
    """Return what binds a socket, unless a port is taken."""

    def bind(port: int) -> socket.socket:
        if port in taken:
            raise OSError(error, "in use")
        return bound("127.0.0.1", 0 if port else port)

    return bind


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return Ports(tmp_path / "ports.json")


def test_candidates_are_below_those_that_systems_give_to_clients(ports: Ports) -> None:
    *chosen, last = ports.candidates("a")
    assert (len(chosen), last) == (50, 0)
    assert all(20_000 <= port < 30_000 for port in chosen)
    assert len(set(chosen)) > 25
    ports.note("a", 4711)
    first, *others = ports.candidates("a")
    assert (first, len(others), others[-1]) == (4711, 51, 0)


def test_a_port_is_known_until_it_is_forgotten(ports: Ports) -> None:
    assert not ports.known("a")
    with pytest.raises(KeyError):
        ports.port("a")
    ports.note("a", 4711)
    assert (ports.known("a"), ports.port("a")) == (True, 4711)
    ports.forget("a")
    ports.forget("a")
    assert not ports.known("a")


def test_ports_are_saved_if_they_have_changed(tmp_path: Path, ports: Ports) -> None:
    file = tmp_path / "ports.json"
    ports.save()
    assert not file.exists()
    ports.note("a", 4711)
    ports.save()
    assert json.loads(file.read_text()) == {"a": 4711}
    file.unlink()
    ports.save()
    assert not file.exists(), "it has been saved"
    file.write_text('{"a": 4712}')
    again = Ports(file)
    assert again.port("a") == 4712
    again.forget("a")
    again.save()
    assert json.loads(file.read_text()) == {}


def test_a_server_listens_at_the_first_free_candidate(ports: Ports) -> None:
    ports.note("a", 4711)
    tried: list[int] = []

    def bind(port: int) -> socket.socket:
        tried.append(port)
        return binder({4711})(port)

    with ports.listen("a", bind) as listener:
        assert ports.port("a") == listener.getsockname()[1]
    assert (tried[0], len(tried)) == (4711, 2)


@pytest.mark.parametrize(
    ("taken", "error"),
    [(set(range(65536)), errno.EADDRINUSE), ({4711}, errno.EACCES)],
    ids=["all are taken", "another error"],
)
def test_a_server_that_cannot_listen_says_why(ports: Ports, taken: set[int], error: int) -> None:
    ports.note("a", 4711)
    with pytest.raises(OSError) as raised:  # noqa: PT011  by its number
        ports.listen("a", binder(taken, error))
    assert raised.value.errno == error


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_server_that_binds_by_itself_tries_again(ports: Ports, error: type[Exception]) -> None:
    ports.note("a", 4711)
    tried: list[int] = []

    async def start(port: int) -> int:
        tried.append(port)
        if len(tried) < 3:
            raise error
        return 8080

    assert asyncio.run(ports.start("a", start)) == 8080 == ports.port("a")
    assert (tried[0], len(tried)) == (4711, 3)

    async def fail(port: int) -> int:
        raise error

    with pytest.raises(error):
        asyncio.run(ports.start("b", fail))
