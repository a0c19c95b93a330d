"""Forwards ports of this machine to a host, through connections that are opened again when they are lost.

- Listens on ports of this machine, on loopback alone.
- Keeps a connection to a worker open for forwarded ports, until the user ends it or the node ends.
"""

from __future__ import annotations

import errno
import re
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from tpuctl import polling
from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    ConfigError,
    HostError,
    NotFoundError,
    PreemptedError,
    StateError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.progress import Report
from tpuctl.flows.remote.targets import Hosts
from tpuctl.nodes.queued_resources import require_running
from tpuctl.polling import Backoff, Sleep

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import ByteStream, Ssh
    from tpuctl.cloud.ssh.process import HostPorts


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


PATIENCE = 60.0
"""Seconds that a client waits for a connection."""


class Link:
    """The connection that all forwarded ports share; there may be none for a while."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ports: HostPorts | None = None
        self._closed = False

    def attach(self, ports: HostPorts | None) -> None:
        """Take another connection, or None when it is lost."""
        with self._changed:
            self._ports = ports
            self._changed.notify_all()

    def close(self) -> None:
        """Let no client wait any longer."""
        with self._changed:
            self._closed, self._ports = True, None
            self._changed.notify_all()

    def open(self, port: int, origin: tuple[str, int]) -> ByteStream:
        """Connect to a port of the host, once there is a connection.

        Raises ConnectionRefusedError where nothing listens, ConnectionError without a connection for so long.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ports or self._closed, PATIENCE)
            ports = self._ports
        if ports is None:
            raise ConnectionError("there is no connection to the host")
        return ports.open(port, origin)


CHUNK = 1 << 15
LOOK_INTERVAL = 5.0
"""Seconds between looks whether a host that has closed its side is gone, while a client sends nothing."""
PULSE = 15.0
"""Seconds between signs of life: a laptop that wakes up notices a dead connection after that and SILENCE."""
SILENCE = 10.0
BACKOFF = Backoff(first=0.5, longest=15.0, factor=2.0)
FATAL = (ConfigError, NotFoundError, PreemptedError)


def forward(
    provider: Provider, ssh: Ssh, hosts: Hosts, listeners: Sequence[Listener], report: Report,
    ready: Callable[[], None], sleep: Sleep = polling.sleep,
) -> NoReturn:  # fmt: skip
    """Serve the listeners with ports of the one worker of `hosts`, until Ctrl-C; closes them at the end.

    Calls `ready` once there is a connection.

    A lost connection is opened again, with pauses that grow. Raises the error of the first connection;
    later PreemptedError, StateError or NotFoundError once the node has ended, and HostError for another host
    key than the published one.
    """
    link = Link()
    with Service(listeners, link, report):
        reason = _connected(ssh, hosts, link, ready)
        while True:
            report(f"{reason}; connecting again")
            hosts, reason = _connected_again(provider, ssh, hosts, link, report, sleep)


def _connected_again(
    provider: Provider, ssh: Ssh, hosts: Hosts, link: Link, report: Report, sleep: Sleep
) -> tuple[Hosts, str]:
    """Return once another connection was opened and lost, with what was found and why it was lost."""
    before = ""
    for pause in BACKOFF.pauses():
        try:
            hosts = _looked_up(provider, hosts)
            return hosts, _connected(ssh, hosts, link, lambda: report("connected again"))
        except FATAL:
            raise
        except TpuctlError as error:
            if "host_key" in error.facts:
                raise
            if error.message != before:
                report(error.message)
            before = error.message
        sleep(pause)
    raise AssertionError("pauses() has no end")


def _looked_up(provider: Provider, hosts: Hosts) -> Hosts:
    """Return the hosts as they are now; raises one of FATAL, or HostError for a node that may return."""
    node = provider.get_node(hosts.node.id)
    if node.state.becomes_ready:
        raise HostError(f"Node '{node.name}' is {node.provider_state}.")
    try:
        require_running(node)
    except StateError as error:
        raise NotFoundError(error.message, hint=error.hint) from error
    if node.missing_hosts:
        raise HostError(f"Node '{node.name}' is {node.provider_state}, but {node.missing_hosts}.")
    return replace(hosts, node=node, host_keys=provider.host_keys(node.id))


def _connected(ssh: Ssh, hosts: Hosts, link: Link, opened: Callable[[], None]) -> str:
    """Open a connection, call `opened`, and return why the connection was lost."""
    from tpuctl.cloud.ssh.process import HostPorts  # noqa: PLC0415  paramiko

    (worker,) = hosts.workers
    with ssh.connect(hosts.node, worker, hosts.host_key(worker)) as session:
        ports = HostPorts(session.transport)
        link.attach(ports)
        opened()
        try:
            while not ports.is_lost_within(PULSE):
                if not ports.answers(SILENCE):
                    return f"worker {worker} of '{hosts.node.name}' does not answer"
        finally:
            link.attach(None)
    return f"the connection to worker {worker} of '{hosts.node.name}' was lost"


# Serves the clients of forwarded ports: each gets a stream to its port of the host.


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
