"""Forwarded ports: their clients, the connection they share, and which ports of this machine are taken."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tests.isolation.ports import free_port, listens
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.remote import forwarding as flow
from tpuctl.flows.remote import forwarding as link_module
from tpuctl.flows.remote import forwarding as service_module
from tpuctl.flows.remote.forwarding import Link, PortPair, Service, is_port, listen, parse_ports

Handler = Callable[[socket.socket], object]


class Ports:
    """Ports of a host that is in this process: `handler` serves every stream in a thread."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.opened: list[int] = []
        self.threads: list[threading.Thread] = []

    def open(self, port: int, origin: tuple[str, int]) -> socket.socket:
        self.opened.append(port)
        ours, theirs = socket.socketpair()

        def serve() -> None:
            with theirs:
                self.handler(theirs)

        self.threads.append(threading.Thread(target=serve, daemon=True))
        self.threads[-1].start()
        return ours


class Refusing(Ports):
    """Ports on which nothing listens."""

    def open(self, port: int, origin: tuple[str, int]) -> socket.socket:
        raise ConnectionRefusedError


def echo(stream: socket.socket) -> None:
    while data := stream.recv(1 << 14):
        stream.sendall(data)


@contextmanager
def serving(ports: Ports | None, reports: list[str] | None = None) -> Iterator[tuple[int, Link, Service]]:
    """A forwarded port, whose threads have ended afterwards."""
    before = set(threading.enumerate())
    (listener,) = listen([PortPair(0, 6006)])
    link = Link()
    link.attach(ports)  # type: ignore[arg-type]  # has the method that is used
    with Service([listener], link, (reports if reports is not None else []).append) as service:
        yield listener.ports.local, link, service
    for thread in ports.threads if ports else ():
        thread.join(60)
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
    assert not listens(("127.0.0.1", listener.ports.local))


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_a_client_that_has_sent_all_still_gets_its_answer() -> None:
    def answer(stream: socket.socket) -> None:
        stream.sendall(read_all(stream)[::-1])

    with serving(Ports(answer)) as (port, _, _), socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"noitseuq"


def test_many_clients_at_once_get_their_own_bytes() -> None:
    contents = [os.urandom(100_000) for _ in range(50)]
    answers: dict[int, bytes] = {}

    def ask(number: int, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            sender = threading.Thread(
                target=lambda: (client.sendall(contents[number]), client.shutdown(1)), daemon=True
            )
            sender.start()
            answers[number] = read_all(client)
            sender.join()

    with serving(Ports(echo)) as (port, _, _):
        clients = [threading.Thread(target=ask, args=(number, port), daemon=True) for number in range(50)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert answers == dict(enumerate(contents))


def test_a_client_that_stays_idle_is_let_go_when_the_host_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "LOOK_INTERVAL", 0.02)
    ports = Ports(lambda stream: stream.sendall(b"bye"))
    with serving(ports) as (port, _, service), socket.create_connection(("127.0.0.1", port)) as client:
        assert read_all(client) == b"bye"
        deadline = time.monotonic() + 60
        while service.clients:  # its threads end although the client stays
            assert time.monotonic() < deadline


def test_the_end_closes_clients_in_the_middle() -> None:
    with serving(Ports(echo)) as (port, _, _):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"x")
        assert client.recv(1) == b"x"
    with client:
        assert client.recv(1) == b""


def test_a_client_waits_for_a_connection_that_is_opened_again() -> None:
    with serving(None) as (port, link, _), socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"early")
        ports = Ports(echo)
        link.attach(ports)  # type: ignore[arg-type]
        assert client.recv(5) == b"early"
        client.close()
        ports.threads[0].join(60)


def test_a_client_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "PATIENCE", 0.01)
    with serving(None) as (port, _, _), socket.create_connection(("127.0.0.1", port)) as client:
        assert client.recv(1) == b""


def test_a_port_on_which_nothing_listens_is_said_once() -> None:
    reports: list[str] = []
    with serving(Refusing(echo), reports) as (port, _, _):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.recv(1) == b""
    assert reports == ["nothing listens on port 6006 of the host yet"]


def test_two_clients_of_such_a_port_at_once_are_told_once() -> None:
    """The second was refused before the first one's report was remembered."""
    reports: list[str] = []
    service = Service([], Link(), reports.append)

    class Remembered(set[int]):
        def add(self, port: int) -> None:
            """Be the second one, as far as the first allows."""
            second = threading.Thread(target=service._report_once, args=(port,), daemon=True)
            if service._lock.acquire(blocking=False):
                service._lock.release()
                service._refused = set()
                second.start()
                second.join()
            super().add(port)

    service._refused = Remembered()
    service._report_once(6006)
    assert reports == ["nothing listens on port 6006 of the host yet"]
    service._wake.close()
    service._awake.close()


ORIGIN = ("127.0.0.1", 1)


class LinkPorts:
    """A connection whose streams are what was asked for."""

    def open(self, port: int, origin: tuple[str, int]) -> tuple[int, tuple[str, int]]:
        return port, origin


class Condition(threading.Condition):
    """A condition that says when somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_awaited.set()
        return super().wait(timeout)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    """A link that says when somebody waits, and whose clients are patient for longer than a test is."""
    monkeypatch.setattr(flow, "PATIENCE", 50.0)
    link = Link()
    link._changed = Condition()
    return link


def is_awaited(link: Link) -> threading.Event:
    return cast("Condition", link._changed).is_awaited


def opened(link: Link, change: Callable[[], None]) -> Any:
    """Return what a client gets that waits while something changes."""
    results: list[Any] = []

    def client() -> None:
        try:
            results.append(link.open(80, ORIGIN))
        except ConnectionError as error:
            results.append(str(error))

    thread = threading.Thread(target=client, daemon=True)
    thread.start()
    assert is_awaited(link).wait(30)
    change()
    thread.join(30)
    return results.pop() if results else "still waiting"


def test_a_client_gets_a_stream_of_the_present_connection(link: Link) -> None:
    link.attach(cast("Any", LinkPorts()))
    assert link.open(80, ORIGIN) == (80, ORIGIN)
    assert not is_awaited(link).is_set()


def test_a_client_that_waits_gets_the_next_connection(link: Link) -> None:
    assert opened(link, lambda: link.attach(cast("Any", LinkPorts()))) == (80, ORIGIN)


def test_a_client_waits_where_the_connection_is_lost_and_the_end_lets_it_go(link: Link) -> None:
    link.attach(cast("Any", LinkPorts()))
    link.attach(None)
    assert opened(link, link.close) == "there is no connection to the host"


def test_after_the_end_nobody_waits(link: Link) -> None:
    link.attach(cast("Any", LinkPorts()))
    link.close()
    with pytest.raises(ConnectionError, match=r"^there is no connection to the host$"):
        link.open(80, ORIGIN)
    assert not is_awaited(link).is_set()


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
