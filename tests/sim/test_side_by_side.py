"""Simulators side by side on one machine: each numbers its hosts from an address of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import User
from tpuctl.sim.world.resources import address, addresses_before


@pytest.mark.parametrize("folder", ["one", "two"])
def test_hosts_are_numbered_from_the_folders_own_address_restarts_included(
    tmp_path: Path, folder: str
) -> None:
    user, before = User(tmp_path), addresses_before(tmp_path / folder)
    for number in (1, 2):
        running = RunningSimulator(tmp_path / folder)
        try:
            node = user.create(running.simulator.endpoints["tpu_grpc"], f"node-{number}")
        finally:
            running.close()
        assert node.network_endpoints[0].ip_address == address(before + number)
