"""Which ports of this machine are taken, and what is said where they cannot be."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from tests.isolation.ports import free_port
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.remote.forwarding import PortPair, is_port, listen, parse_ports


@pytest.mark.parametrize(
    ("text", "pair"),
    [("6006", (6006, 6006)), ("16006:6006", (16006, 6006)), (":6006", (0, 6006)), ("0:6006", (0, 6006)),
     ("65535", (65535, 65535)), ("1", (1, 1)), ("65535:1", (65535, 1)), (":1", (0, 1))],
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


@pytest.mark.parametrize("text", ["n1", "tpu", "a6006", ""])
def test_the_name_of_a_node_means_no_ports(text: str) -> None:
    assert not is_port(text)


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_a_machine_without_ipv6_listens_on_ipv4_alone(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    create = socket.create_server

    def without_ipv6(address: tuple[str, int], **options: Any) -> socket.socket:
        if options["family"] is socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    (listener,) = listen([PortPair(0, 6006)])
    with listener.sockets[0] as only:
        assert (len(listener.sockets), only.getsockname()[0]) == (1, "127.0.0.1")


@pytest.mark.parametrize(
    ("family", "number", "text"),
    [
        (socket.AF_INET, errno.EADDRNOTAVAIL, "cannot be used: strange"),
        (socket.AF_INET, errno.EACCES, "cannot be used: strange"),
        (socket.AF_INET6, errno.EACCES, "cannot be used: strange"),
        (socket.AF_INET6, errno.EADDRINUSE, "is used by another program"),
    ],
)
def test_any_other_failure_is_named_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, family: int, number: int, text: str
) -> None:
    create, port, opened = socket.create_server, free_port(), list[socket.socket]()

    def failing(address: tuple[str, int], **options: Any) -> socket.socket:
        if options["family"] is family:
            raise OSError(number, "strange")
        opened.append(create(address, **options))
        return opened[-1]

    monkeypatch.setattr(socket, "create_server", failing)
    with pytest.raises(StateError) as error:
        listen([PortPair(port, 60_000)])
    assert error.value.message == f"Port {port} of this machine {text}."
    assert error.value.hint == "Choose another one: :60000"
    assert [listening.fileno() for listening in opened] == [-1] * len(opened)


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
