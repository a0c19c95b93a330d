"""A host without an external address: from inside of its network alone it can be reached.

A host's /etc/hosts names every worker and the metadata server, below the lines of this machine.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.hosts.site import Site, hosts_of
from tpuctl.sim.hosts.host import etc_hosts
from tpuctl.sim.hosts.metadata.server import Instance, metadata_tree
from tpuctl.sim.records import Host


@pytest.fixture
def inside(site: Site) -> Host:
    """A host that is up and has no external address."""
    (host,) = site.up([replace(host, external=False) for host in hosts_of()])
    return host


def banner(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=60) as connection:
        return connection.recv(4)


def test_its_address_refuses_this_machine(site: Site, inside: Host) -> None:
    with pytest.raises(ConnectionResetError):
        banner(site.dial(inside))


def test_the_network_itself_reaches_it_each_time(site: Site, inside: Host) -> None:
    async def read() -> bytes:
        reader, writer = await site.pool.connect(inside, 22)
        try:
            return await reader.read(4)
        finally:
            writer.close()

    assert [site.loop.run(read()) for _ in range(2)] == [b"SSH-"] * 2
    assert not site.pool._network._own_ends
    with pytest.raises(ConnectionResetError):
        banner(site.dial(inside))


def test_programs_on_hosts_reach_it(site: Site, inside: Host) -> None:
    (other,) = site.up(hosts_of())
    address, port = site.dial(inside)
    script = f"import socket; print(socket.create_connection(({address!r}, {port})).recv(4).decode())"
    with site.fabric(other) as connection:
        assert connection.run(f'python3 -c "{script}"').stdout == "SSH-\n"


def test_an_update_gives_it_an_external_address_and_takes_it_away(site: Site, inside: Host) -> None:
    def update(external: bool) -> None:
        changed = replace(inside, external=external)
        site.loop.run(site.pool.update_metadata([changed], {"ssh-keys": site.key.line()}))

    update(True)
    assert banner(site.dial(inside)) == b"SSH-"
    update(False)
    with pytest.raises(ConnectionResetError):
        banner(site.dial(inside))


def test_its_metadata_server_shows_none() -> None:
    (host,) = hosts_of()
    for shown, external in (([host.address], True), ([], False)):
        tree: Any = metadata_tree(Instance(replace(host, external=external), {}, {}))
        (interface,) = tree["instance"]["network-interfaces"]
        assert [entry["external-ip"] for entry in interface["access-configs"]] == shown
        assert interface["ip"] == host.address


def test_a_firewall_that_is_closed_refuses_this_machine_alone(site: Site) -> None:
    (host,) = site.up(hosts_of())
    site.closed.add("demo")
    with pytest.raises(ConnectionResetError):
        banner(site.dial(host))
    site.closed.clear()
    assert banner(site.dial(host)) == b"SSH-"


def test_it_names_every_worker_and_the_metadata_server() -> None:
    first, second = hosts_of(2)
    zone = "europe-west4-a.c.demo.internal"
    assert etc_hosts(second, "127.192.0.1", "127.0.0.1 localhost").splitlines() == [
        "127.0.0.1 localhost",
        f"{first.address} {first.hostname}.{zone} {first.hostname}  # Added by Google",
        f"{second.address} {second.hostname}.{zone} {second.hostname}  # Added by Google",
        "127.192.0.1 metadata.google.internal  # Added by Google",
    ]


def test_it_does_not_name_a_metadata_server_that_would_be_another_program() -> None:
    assert "metadata" not in etc_hosts(hosts_of()[0], "", "127.0.0.1 localhost\n")
