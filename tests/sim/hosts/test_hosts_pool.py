"""Hosts come up, go down and leave nothing behind."""

from __future__ import annotations

import json
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fabric
import pytest
from hosts_site import Site, hosts_of

from tpuctl.sim.hosts.network import Network
from tpuctl.sim.records import GuestAttribute, Hosts


def test_the_pool_is_what_the_world_asks_for(site: Site) -> None:
    hosts: Hosts = site.pool
    assert hosts is site.pool


def test_thirty_two_hosts_start_together_and_answer(either_site: Site) -> None:
    hosts = either_site.up(hosts_of(32, "v3-256"))

    def worker(connection: fabric.Connection) -> str:
        with connection:
            return str(connection.run("echo $HOSTNAME").stdout.strip())

    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(worker, map(either_site.fabric, hosts)))
    assert names == [host.hostname for host in hosts]


def test_each_host_listens_on_its_own_address_or_its_own_port(either_site: Site) -> None:
    hosts = either_site.up(hosts_of(4, "v3-32"))
    endpoints = [either_site.dial(host) for host in hosts]
    assert len(set(endpoints)) == 4
    if either_site.aliases:
        assert [address for address, _ in endpoints] == [host.address for host in hosts]
        assert len({port for _, port in endpoints}) == 1
    else:
        assert {address for address, _ in endpoints} == {"127.0.0.1"}


def test_two_simulators_share_the_machine(site: Site, tmp_path: Path) -> None:
    hosts = site.up(hosts_of())
    other = Site(site.loop, tmp_path / "other", site.key, site.aliases)
    other.up(hosts)
    try:
        assert other.dial(hosts[0]) != site.dial(hosts[0])
        with other.fabric(hosts[0]) as connection:
            assert str(tmp_path / "other") in connection.run("pwd").stdout
    finally:
        site.loop.run(other.pool.close())


def test_a_taken_port_is_left_to_its_owner(site: Site) -> None:
    if not Network().aliases:
        pytest.skip("hosts have ports of their own here")
    first, second = hosts_of(2, "v4-16")
    site.up([first])
    with socket.create_server((second.address, site.dial(first)[1])):
        site.up([second])
        assert site.dial(second) != (second.address, site.dial(first)[1])
        with site.fabric(second) as connection:
            assert connection.run("echo $HOSTNAME").stdout.strip() == second.hostname


def test_starting_twice_changes_nothing_but_the_metadata(site: Site) -> None:
    hosts = site.up(hosts_of())
    endpoint = site.dial(hosts[0])
    with site.fabric(hosts[0]) as connection:
        connection.open()
        site.up(hosts, {"colour": "red"})
        assert connection.run("echo still here").ok
    assert site.dial(hosts[0]) == endpoint


def test_a_stopped_node_is_gone_and_comes_back_with_its_files(site: Site) -> None:
    hosts = site.up(hosts_of())
    with site.fabric(hosts[0]) as connection:
        connection.run("echo kept > file")
        endpoint = site.dial(hosts[0])
        site.stop(hosts, keep_disk=True)
    assert json.loads(site.pool.dial.read_text()) == {}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(endpoint)
    site.up(hosts)
    with site.fabric(hosts[0]) as connection:
        assert connection.run("cat file").stdout == "kept\n"


def test_a_deleted_node_leaves_no_file(site: Site) -> None:
    hosts = site.up(hosts_of(4, "v3-32"))
    site.stop(hosts)
    assert list(site.folder.iterdir()) == []
    assert site.pool.guest_attributes(hosts[0]) == []


def test_a_node_that_is_down_can_be_deleted(site: Site) -> None:
    hosts = site.up(hosts_of())
    site.loop.run(site.pool.close())
    site.pool = site.new_pool()
    site.stop(hosts)
    assert list(site.folder.iterdir()) == []


def test_a_start_that_fails_leaves_no_host_up(site: Site) -> None:
    good, bad = hosts_of(2, "v4-16")
    blocked = site.folder / bad.node_uid / "w1"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the host's folder should be")
    with pytest.raises(OSError, match="w1"):
        site.up([good, bad])
    blocked.unlink()
    site.up([good, bad])
    with site.fabric(bad) as connection:
        assert connection.run("true").ok


def test_the_host_publishes_its_key_and_name(site: Site) -> None:
    (host,) = site.up(hosts_of())
    key, name = site.pool.guest_attributes(host)
    assert (key.namespace, key.key) == ("hostkeys", "ssh-ed25519")
    assert name == GuestAttribute("hostkeys", "hostname", host.hostname)
    assert site.new_pool().guest_attributes(host) == [key, name], "also while it is down"


def test_secrets_are_this_users_alone(site: Site) -> None:
    (host,) = site.up(hosts_of())
    folder = site.folder / host.node_uid / "w0"
    for path in (folder / "ssh_host_ed25519_key", folder / "guest.json", site.pool.dial):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (folder, folder / "home", folder / "tmp"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_nothing_of_another_host_is_in_a_hosts_environment(site: Site) -> None:
    one, two = site.up(hosts_of(2, "v4-16"))
    with site.fabric(one) as connection:
        environment = connection.run("env").stdout
    assert f"/{one.node_uid}/w0/" in environment
    assert f"/{two.node_uid}/w1" not in environment
    assert two.address not in environment
