"""Fixtures: one simulator for all tests of the relay."""

from __future__ import annotations

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
    yield
    site.running.faults.clear()


@pytest.fixture(scope="module")
def echo_port(site: Site) -> Iterator[int]:
    """A port of the host that sends back what comes."""
    with server(site.host.address, echo) as port:
        yield port
