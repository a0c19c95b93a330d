"""Which ports of this machine are taken, and what is said where they cannot be."""

from __future__ import annotations

import socket

import pytest

from tests.isolation.ports import free_port
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.remote.forwarding.listeners import PortPair, is_port, listen, parse_ports


@pytest.mark.parametrize(
    ("text", "pair"),
    [("6006", (6006, 6006)), ("16006:6006", (16006, 6006)), (":6006", (0, 6006)), ("0:6006", (0, 6006)),
     ("65535", (65535, 65535))],
)  # fmt: skip
def test_ports_are_written_as_for_ssh_and_kubectl(text: str, pair: tuple[int, int]) -> None:
    assert is_port(text)
    assert parse_ports(text) == PortPair(*pair)


@pytest.mark.parametrize(
    "text",
    ["0", ":0", "65536", "1:65536", "65536:1", "1:", ":", "1:2:3", "6006/tcp", "-1", "\u0661", "1" * 99],
)
def test_any_other_text_names_no_port(text: str) -> None:
    with pytest.raises(UsageError, match="names no port"):
        parse_ports(text)


def test_only_this_machine_can_connect() -> None:
    (listener,) = listen([PortPair(0, 6006)])
    names = [listening.getsockname()[:2] for listening in listener.sockets]
    listener.close()
    assert {address for address, _ in names} <= {"127.0.0.1", "::1"}
    assert {port for _, port in names} == {listener.ports.local}


def test_a_port_that_is_taken_is_named_and_no_other_one_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], free_port()
        with pytest.raises(StateError, match=f"Port {port} of this machine is used by another") as error:
            listen([PortPair(free, 1), PortPair(port, 6006)])
        assert "16006:6006" in error.value.hint
        (again,) = listen([PortPair(free, 1)])
        again.close()


def test_the_port_that_is_taken_is_not_suggested_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StateError) as error:
            listen([PortPair(port, port - 10_000)])
    assert error.value.hint == f"Choose another one: :{port - 10_000}"
