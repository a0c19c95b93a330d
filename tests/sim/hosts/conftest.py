"""Fixtures: a running pool of simulated hosts, keys, a connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fabric
import pytest

from tests.event_loops.thread import LoopThread
from tests.sim.hosts.site import KeyPair, Site, hosts_of, new_key
from tpuctl.sim.hosts.network import has_aliases


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return new_key(tmp_path_factory.mktemp("keys") / "id_ed25519")


@pytest.fixture
def stranger(tmp_path: Path) -> KeyPair:
    return new_key(tmp_path / "id_stranger")


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture
def site(loop: LoopThread, tmp_path: Path, key: KeyPair) -> Iterator[Site]:
    """A pool in the way the system can: own addresses on Linux, own ports elsewhere."""
    site = Site(loop, tmp_path, key, None)
    yield site
    site.close()


@pytest.fixture(params=["own addresses", "own ports"])
def either_site(
    request: pytest.FixtureRequest, loop: LoopThread, tmp_path: Path, key: KeyPair
) -> Iterator[Site]:
    """A pool in both ways."""
    aliases = request.param == "own addresses"
    if aliases and not has_aliases():
        pytest.skip("this system has no loopback addresses but 127.0.0.1")
    site = Site(loop, tmp_path, key, aliases)
    yield site
    site.close()


@pytest.fixture
def connection(site: Site) -> Iterator[fabric.Connection]:
    """A fabric connection to one fresh host."""
    with site.fabric(site.up(hosts_of())[0]) as connection:
        yield connection
