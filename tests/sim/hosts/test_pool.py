"""Hosts come up, go down and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import stat
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fabric
import paramiko
import pytest

from tests.isolation.ports import APART, listens
from tests.sim.hosts.site import KeyPair, Site, hosts_of, wait_until
from tpuctl.sim.hosts.host import RunningHost
from tpuctl.sim.hosts.network import Network, has_aliases
from tpuctl.sim.network import tunnels
from tpuctl.sim.records import GuestAttribute, Host, Hosts


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
    if not has_aliases():
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


def test_a_start_that_is_interrupted_leaves_no_host_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the simulator's own end: hosts that were up already are nobody's then."""
    hosts, opened = hosts_of(2, "v4-16"), list[RunningHost]()
    open_host = RunningHost.open

    async def interrupted() -> None:
        second, first_is_up = asyncio.Event(), asyncio.Event()

        async def open_first_alone(host: RunningHost, network: Network) -> None:
            if host.host.worker:
                await second.wait()
            await open_host(host, network)
            opened.append(host)
            first_is_up.set()

        monkeypatch.setattr(RunningHost, "open", open_first_alone)
        starting = asyncio.create_task(site.pool.start(hosts, {}))
        await first_is_up.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    site.loop.run(interrupted())
    (first,) = opened
    assert not listens(first.ssh_endpoint)


def test_a_stopped_node_is_gone_and_comes_back_with_its_files(site: Site) -> None:
    hosts = site.up(hosts_of())
    with site.fabric(hosts[0]) as connection:
        connection.run("echo kept > file")
        endpoint = site.dial(hosts[0])
        site.stop(hosts, keep_disk=True)
    assert json.loads(site.pool.hosts_file.read_text()) == {}
    assert not listens(endpoint)
    site.up(hosts)
    with site.fabric(hosts[0]) as connection:
        assert connection.run("cat file").stdout == "kept\n"


def test_a_deleted_node_leaves_no_file(site: Site) -> None:
    hosts = site.up(hosts_of(4, "v3-32"))
    site.stop(hosts)
    assert list(site.folder.iterdir()) == []
    assert site.pool.guest_attributes(hosts[0]) == []


def test_a_host_whose_files_are_gone_is_closed(site: Site) -> None:
    hosts = site.up(hosts_of())
    endpoint = site.dial(hosts[0])
    shutil.rmtree(site.folder)
    site.loop.run(site.pool.close())
    assert not listens(endpoint)


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
    published = site.pool.guest_attributes(host)
    key, name = [item for item in published if item.namespace == "hostkeys"]
    assert key.key == "ssh-ed25519"
    assert name == GuestAttribute("hostkeys", "hostname", host.hostname)
    assert site.new_pool().guest_attributes(host) == published, "also while it is down"


def test_it_publishes_them_some_time_after_it_answers(site: Site) -> None:
    late, soon = site.new_pool(publish_delay=3600.0), site.new_pool(publish_delay=0.01)
    hosts = hosts_of()
    site.loop.run(late.start(hosts, {}))
    assert json.loads(late.hosts_file.read_text())[hosts[0].address]
    assert late.guest_attributes(hosts[0]) == []
    site.loop.run(late.close())
    site.loop.run(soon.start(hosts, {}))
    wait_until(lambda: soon.guest_attributes(hosts[0]))


def test_the_host_publishes_what_it_runs_on(site: Site) -> None:
    (host,) = site.up(hosts_of())
    published = site.pool.guest_attributes(host)
    inventory = {item.key: item.value for item in published if item.namespace == "guestInventory"}
    assert inventory["Hostname"] == host.hostname
    assert {"Architecture", "KernelRelease", "ShortName", "Version", "LastUpdated"} <= set(inventory)


def test_after_a_restart_everything_is_where_it_was(
    either_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "CANDIDATES", APART)  # where nobody takes a port between the two
    hosts = either_site.up(hosts_of(4, "v3-32"))
    before = {host: where_and_who(either_site, host) for host in hosts}
    either_site.loop.run(either_site.pool.close())
    either_site.pool = either_site.new_pool()
    either_site.up(list(reversed(hosts)))
    assert {host: where_and_who(either_site, host) for host in hosts} == before


def test_a_host_whose_port_was_taken_meanwhile_moves(site: Site) -> None:
    hosts = site.up(hosts_of())
    endpoint = site.dial(hosts[0])
    site.loop.run(site.pool.close())
    site.pool = site.new_pool()
    with socket.create_server(endpoint):
        site.up(hosts)
        assert site.dial(hosts[0]) != endpoint
        with site.fabric(hosts[0]) as connection:
            assert connection.run("true").ok


def test_a_deleted_hosts_ports_are_forgotten(site: Site) -> None:
    own_ports = Site(site.loop, site.folder.parent / "other", site.key, aliases=False)
    hosts = own_ports.up(hosts_of())
    remembered = own_ports.folder.with_name("hosts-ports.json")
    assert hosts[0].address in remembered.read_text()
    own_ports.stop(hosts)
    assert hosts[0].address not in remembered.read_text()


def test_no_two_hosts_and_no_two_worlds_have_the_same_secrets(site: Site) -> None:
    hosts = site.up(hosts_of(2, "v4-16"))
    other = Site(site.loop, site.folder.parent / "other", site.key, site.aliases)
    other.up(hosts)
    try:
        pairs = [(world, host) for world in (site, other) for host in hosts]
        keys = [host_key(world, host).read_text() for world, host in pairs]
        tokens = [where_and_who(world, host)[2] for world, host in pairs]
        assert len(set(keys)) == len(set(tokens)) == 4
    finally:
        site.loop.run(other.pool.close())


def test_a_projects_key_counts_after_the_delay(site: Site, stranger: KeyPair) -> None:
    (host,) = site.up(hosts_of())
    site.set_project("demo", {"ssh-keys": stranger.line("eve")})
    with site.fabric(host, "eve", stranger) as early, pytest.raises(paramiko.AuthenticationException):
        early.open()
    site.clock.now += 5.0
    with site.fabric(host, "eve", stranger) as later:
        later.open()
    with site.fabric(host) as own:
        own.open()


def host_key(site: Site, host: Host) -> Path:
    return site.folder / host.node_uid / f"w{host.worker}" / "ssh_host_ed25519_key"


def where_and_who(site: Site, host: Host) -> tuple[object, ...]:
    """Where the host's servers are, and its access token."""
    with site.fabric(host) as connection:
        address = connection.run("echo $GCE_METADATA_HOST").stdout.strip()
    token = "/computeMetadata/v1/instance/service-accounts/default/token"
    request = urllib.request.Request(f"http://{address}{token}", headers={"Metadata-Flavor": "Google"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return site.dial(host), address, json.load(answer)["access_token"]


def test_secrets_are_this_users_alone(site: Site) -> None:
    (host,) = site.up(hosts_of())
    where_and_who(site, host)
    folder = site.folder / host.node_uid / "w0"
    names = ("ssh_host_ed25519_key", "access_token", "guest.json")
    for path in (*(folder / name for name in names), site.pool.hosts_file, site.pool.ssh_config):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (folder, folder / "home", folder / "tmp"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_nothing_of_another_host_is_in_a_hosts_environment(site: Site) -> None:
    first, second = site.up(hosts_of(2, "v4-16"))
    with site.fabric(first) as connection:
        environment = connection.run("env").stdout
    assert f"/{first.node_uid}/w0/" in environment
    assert f"/{second.node_uid}/w1" not in environment
    assert second.address not in environment
