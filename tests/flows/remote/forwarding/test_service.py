"""Clients of a forwarded port: many at once, half-closed ones, waiting ones; none leaves a thread behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.isolation.ports import listens
from tpuctl.flows.remote import forwarding as link_module
from tpuctl.flows.remote import forwarding as service_module
from tpuctl.flows.remote.forwarding import Link, PortPair, Service, listen

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
