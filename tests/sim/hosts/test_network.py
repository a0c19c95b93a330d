"""The sockets of hosts: which address and port each server gets, who may come in, and what silence does."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.sim.hosts import network as module
from tpuctl.sim.hosts.network import Address, HostListener, Network, has_aliases
from tpuctl.sim.network.tunnels import Ports

HOST, OTHER = "127.77.0.1", "127.77.0.2"
needs_aliases = pytest.mark.skipif(not has_aliases(), reason="hosts have ports of their own here")


class OpenGuard:
    """A guard for whom the connections of some ports are another user's."""

    def __init__(self) -> None:
        self.foreign: set[int] = set()

    def is_foreign(self, connection: socket.socket) -> bool:
        return connection.getpeername()[1] in self.foreign


class Site:
    """A network, and the sockets that a test opens in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = Ports(folder / "ports.json")
        self.guard = OpenGuard()
        self.open: list[socket.socket] = []

    def network(
        self, aliases: bool | None = False, is_of_a_host: Callable[[Address], bool] = lambda _: False
    ) -> Network:
        guard: Any = self.guard
        return Network(self.ports, guard, aliases, is_of_a_host)

    def listen(self, network: Network, address: str = HOST, service: str = "ssh") -> HostListener:
        listener = network.listen(address, service)
        listener.settimeout(60)
        self.open.append(listener)
        return listener

    def client(self) -> socket.socket:
        """Return a socket whose port is known before it connects."""
        client = socket.socket()
        client.bind(("127.0.0.1", 0))
        client.settimeout(60)
        self.open.append(client)
        return client

    def connected(self, listener: HostListener) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a connection: the client's and the server's."""
        client = self.client()
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        server.settimeout(60)
        self.open.append(server)
        return client, server

    def ignored(self, listener: HostListener) -> socket.socket:
        """Return a client whose connection a mute listener has taken."""
        client = self.client()
        client.connect(listener.getsockname())
        assert select.select([listener], [], [], 60)[0] == [listener]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        return client


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for each in made.open:
        each.close()


def test_without_addresses_of_their_own_servers_have_ports_of_their_own(site: Site) -> None:
    network = site.network(aliases=False)
    addresses = [
        site.listen(network, address, service).getsockname()
        for address in (HOST, OTHER)
        for service in ("ssh", "metadata")
    ]
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    assert len({port for _, port in addresses}) == 4


@needs_aliases
def test_with_addresses_of_their_own_the_servers_of_a_kind_share_a_port(site: Site) -> None:
    network = site.network(aliases=True)
    ssh = [site.listen(network, address).getsockname() for address in (HOST, OTHER)]
    metadata = [site.listen(network, address, "metadata").getsockname() for address in (HOST, OTHER)]
    assert [host for host, _ in ssh] == [host for host, _ in metadata] == [HOST, OTHER]
    assert len({port for _, port in ssh}) == len({port for _, port in metadata}) == 1
    assert ssh[0][1] != metadata[0][1]


@needs_aliases
def test_where_the_shared_port_is_taken_a_host_has_one_of_its_own_from_then_on(site: Site) -> None:
    network = site.network(aliases=True)
    port = site.listen(network).getsockname()[1]
    with socket.create_server((OTHER, port)):
        own = site.listen(network, OTHER)
        address, moved = own.getsockname()
        assert (address, moved == port) == (OTHER, False)
    own.close()
    assert site.listen(network, OTHER).getsockname() == (OTHER, moved)
    network.forget(OTHER)
    site.open.pop().close()
    assert site.listen(network, OTHER).getsockname() == (OTHER, port)


@needs_aliases
def test_another_error_than_a_taken_port_is_raised(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    network = site.network(aliases=True)
    site.listen(network)

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(module, "_bound", forbidden)
    with pytest.raises(PermissionError):
        network.listen(OTHER, "ssh")


def test_a_host_that_will_not_come_back_is_forgotten_with_all_its_ports(site: Site) -> None:
    network = site.network(aliases=False)
    for service in ("ssh", "metadata"):
        site.listen(network, HOST, service)
        site.listen(network, OTHER, service)
    network.forget(HOST)
    known = [name for name in ("ssh", "metadata") if site.ports.known(f"{name} of {HOST}")]
    kept = [name for name in ("ssh", "metadata") if site.ports.known(f"{name} of {OTHER}")]
    assert (known, kept) == ([], ["ssh", "metadata"])


class TestMetadataServer:
    """On port 80, as real ones."""

    def bind(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, *errors: OSError, aliases: bool = True
    ) -> tuple[object, list[tuple[str, int]]]:
        """Return what a network listens on that meets errors first, and what it has tried."""
        tried: list[tuple[str, int]] = []

        def bound(address: str, _: object, port: int) -> str:
            tried.append((address, port))
            if len(tried) <= len(errors):
                raise errors[len(tried) - 1]
            return "the listener"

        monkeypatch.setattr(module, "_bound", bound)
        return site.network(aliases).listen_as_metadata_server(), tried

    def test_it_has_an_address_that_no_host_has(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        listener, tried = self.bind(site, monkeypatch)
        ((address, port),) = tried
        assert (listener, port) == ("the listener", 80)
        first, second, *_ = map(int, address.split("."))
        assert (first, 192 <= second <= 255) == (127, True)

    def test_it_is_looked_for_three_times(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        taken = OSError(errno.EADDRINUSE, "taken")
        assert self.bind(site, monkeypatch, taken, taken)[0] == "the listener"
        listener, tried = self.bind(site, monkeypatch, taken, taken, taken)
        assert (listener, len(tried)) == (None, 3)

    def test_a_user_who_may_not_is_not_asked_again(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        listener, tried = self.bind(site, monkeypatch, PermissionError(errno.EACCES, "no"))
        assert (listener, len(tried)) == (None, 1)

    def test_there_is_none_without_addresses(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.bind(site, monkeypatch, aliases=False) == (None, [])


def test_connections_have_no_delay(site: Site) -> None:
    client, server = site.connected(site.listen(site.network()))
    assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert server.send(b"at once") == 7
    assert client.recv(100) == b"at once"


def test_what_another_user_sends_is_closed_at_once(site: Site) -> None:
    listener = site.listen(site.network())
    foreign = site.client()
    site.guard.foreign.add(foreign.getsockname()[1])
    foreign.connect(listener.getsockname())
    client, server = site.connected(listener)
    assert server.getpeername() == client.getsockname()
    assert foreign.recv(1) == b""


def test_an_address_that_is_not_admitted_is_reset(site: Site) -> None:
    listener = site.listen(site.network())
    refused = site.client()
    address = refused.getsockname()
    listener.admits = lambda peer: peer != address
    refused.connect(listener.getsockname())
    client, server = site.connected(listener)
    assert server.getpeername() == client.getsockname()
    with pytest.raises(ConnectionResetError):
        refused.recv(1)


def test_a_mute_host_sends_nothing_until_it_may_again(site: Site) -> None:
    listener = site.listen(site.network())
    client, server = site.connected(listener)
    listener.mute()
    assert server.send(b"lost") == 4
    assert server.sendmsg([b"lo", memoryview(b"st!")]) == 5
    client.sendall(b"it still reads")
    assert server.recv(100) == b"it still reads"
    listener.unmute()
    assert server.send(b"here ") == 5
    assert server.sendmsg([b"ag", b"ain"]) == 5
    assert client.recv(10, socket.MSG_WAITALL) == b"here again"


def test_connections_to_a_mute_host_get_no_answer_and_are_closed_afterwards(site: Site) -> None:
    listener = site.listen(site.network())
    listener.mute()
    ignored = site.ignored(listener)
    ignored.setblocking(False)
    with pytest.raises(BlockingIOError):
        ignored.recv(1)
    ignored.settimeout(60)
    listener.unmute()
    assert ignored.recv(1) == b""
    listener.settimeout(60)
    client, server = site.connected(listener)
    assert server.getpeername() == client.getsockname()


def test_connections_that_got_no_answer_end_with_the_host(site: Site) -> None:
    listener = site.listen(site.network())
    listener.mute()
    ignored = site.ignored(listener)
    listener.close()
    assert ignored.recv(1) == b""


def test_the_network_knows_its_own_connections_each_once(site: Site) -> None:
    asked: list[Address] = []

    def is_of_a_host(address: Address) -> bool:
        asked.append(address)
        return False

    network = site.network(is_of_a_host=is_of_a_host)
    listener = site.listen(network)

    async def story() -> None:
        _, writer = await network.connect(listener.getsockname())
        own = writer.get_extra_info("sockname")
        assert own[0] == "127.0.0.1"
        assert network.is_inside(own)
        assert asked == []
        assert not network.is_inside(own)
        assert asked == [own]
        writer.close()
        await writer.wait_closed()

    asyncio.run(story(), debug=True)  # which checks that no call on the socket blocks


def test_a_connection_from_a_program_of_a_host_comes_from_inside(site: Site) -> None:
    network = site.network(is_of_a_host=lambda address: address == ("127.0.0.1", 7))
    assert network.is_inside(("127.0.0.1", 7))
    assert not network.is_inside(("127.0.0.1", 8))


def test_a_connection_that_fails_is_not_known_afterwards(site: Site) -> None:
    network = site.network()
    closed = site.listen(network).getsockname()
    site.open.pop().close()

    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await network.connect(closed)

    asyncio.run(story())
    assert network._own_ends == set()


@pytest.mark.parametrize("known", [True, False])
def test_a_network_finds_out_what_its_system_has(
    site: Site, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    def create_server(address: Address) -> socket.socket:
        if not known:
            raise OSError(errno.EADDRNOTAVAIL, "no")
        assert address == ("127.64.0.1", 0)
        return socket.socket()

    monkeypatch.setattr(socket, "create_server", create_server)
    assert site.network(aliases=None).aliases is known
    assert site.network(aliases=not known).aliases is not known
