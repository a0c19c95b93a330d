"""Serves the clients of forwarded ports: each gets a stream to its port of the host."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tpuctl.flows.progress import Report
from tpuctl.flows.remote.forwarding.link import Link
from tpuctl.flows.remote.forwarding.listeners import Listener

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import ByteStream

CHUNK = 1 << 15
LOOK_INTERVAL = 5.0
"""Seconds between looks whether a host that has closed its side is gone, while a client sends nothing."""


class Service:
    """Accepts clients on all listeners until it is closed; two threads a client."""

    def __init__(self, listeners: Sequence[Listener], link: Link, report: Report) -> None:
        self._listeners = listeners
        self._link = link
        self._report = report
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._refused: set[int] = set()
        self._awake, self._wake = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name="forward")

    @property
    def clients(self) -> int:
        """How many are served now."""
        return len(self._clients)

    def __enter__(self) -> Service:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all ports and all connections, and wait for their threads."""
        self._wake.close()
        self._acceptor.join()
        self._awake.close()
        self._link.close()
        with self._lock:
            clients = dict(self._clients)
        for client in clients:
            _cut(client)
        for thread in clients.values():
            thread.join()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._awake, selectors.EVENT_READ)
            for listener in self._listeners:
                for listening in listener.sockets:
                    selector.register(listening, selectors.EVENT_READ, listener.ports.remote)
            while all(self._begin(key) for key, _ in selector.select()):
                pass
        for listener in self._listeners:
            listener.close()

    def _begin(self, key: selectors.SelectorKey) -> bool:
        """Serve a client in a thread of its own; False when the service is closed."""
        if key.data is None:
            return False
        with suppress(OSError):  # the client has gone, or there are too many: others are served
            client, origin = key.fileobj.accept()  # type: ignore[union-attr]  # a socket is registered
            thread = threading.Thread(target=self._serve, args=(client, origin[:2], key.data), daemon=True)
            with self._lock:
                self._clients[client] = thread
            thread.start()
        return True

    def _serve(self, client: socket.socket, origin: tuple[str, int], port: int) -> None:
        try:
            stream = self._link.open(port, origin)
            with self._lock:
                self._refused.discard(port)
            _couple(client, stream)
        except ConnectionRefusedError:
            self._report_once(port)
        except ConnectionError:
            pass  # who opens connections says why there is none
        finally:
            with self._lock:
                del self._clients[client]
            client.close()

    def _report_once(self, port: int) -> None:
        """Say that nothing listens, unless that was the last that was said of the port."""
        with self._lock:
            is_new = port not in self._refused
            self._refused.add(port)
        if is_new:
            self._report(f"nothing listens on port {port} of the host yet")


def _couple(client: socket.socket, stream: ByteStream) -> None:
    """Copy both ways; each direction ends by itself, and an error ends both."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.settimeout(LOOK_INTERVAL)
    stream.settimeout(None)
    back = threading.Thread(target=_copy_back, args=(stream, client), daemon=True)
    back.start()
    try:
        while (data := _receive(client, back)) is not None:
            _send(stream, data)
        stream.shutdown(socket.SHUT_WR)
        back.join()
    except OSError:
        pass
    finally:
        _cut(client)
        stream.close()
        back.join()


def _receive(client: socket.socket, back: threading.Thread) -> bytes | None:
    """Return the next bytes of a client; None at their end, or where nobody would answer them."""
    while True:
        try:
            return client.recv(CHUNK) or None
        except TimeoutError:
            if not back.is_alive():
                return None


def _copy_back(stream: ByteStream, client: socket.socket) -> None:
    try:
        while data := stream.recv(CHUNK):
            _send_to_client(client, data)
        client.shutdown(socket.SHUT_WR)
    except OSError:
        _cut(client)


def _send(stream: ByteStream, data: bytes) -> None:
    while data:
        data = data[stream.send(data) :]


def _send_to_client(client: socket.socket, data: bytes) -> None:
    """Send all bytes to a client, however slowly it reads."""
    while data:
        with suppress(TimeoutError):
            data = data[client.send(data) :]


def _cut(client: socket.socket) -> None:
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
