"""Fixtures: one simulator for all tests of the relay."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.sim.iap.site import Site, echo, server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A simulator with a host."""
    running = Site(tmp_path_factory.mktemp("iap"))
    yield running
    running.running.close()


@pytest.fixture(autouse=True)
def _no_faults(site: Site) -> Iterator[None]:
    """A fault that the next test adds does not fire on a connection of this one."""
    yield
    site.running.faults.clear()
    while site.running.simulator._relay._sockets:
        time.sleep(0.01)


@pytest.fixture(scope="module")
def echo_port(site: Site) -> Iterator[int]:
    """A port of the host that sends back what comes."""
    with server(site.host.address, echo) as port:
        yield port
