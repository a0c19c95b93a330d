"""Addresses of simulated hosts: unique, on loopback, none that is a network's own or broadcast."""

from __future__ import annotations

import pytest

from tpuctl.sim.world.names import address

HOSTS_OF_A_NETWORK = 254
NETWORKS = 64 * 256


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, "127.77.0.1"),
        (HOSTS_OF_A_NETWORK, "127.77.0.254"),
        (HOSTS_OF_A_NETWORK + 1, "127.77.1.1"),
        (256 * HOSTS_OF_A_NETWORK + 1, "127.78.0.1"),
        ((128 - 77) * 256 * HOSTS_OF_A_NETWORK, "127.127.255.254"),
        ((128 - 77) * 256 * HOSTS_OF_A_NETWORK + 1, "127.64.0.1"),
        (NETWORKS * HOSTS_OF_A_NETWORK + 1, "127.77.0.1"),
    ],
)
def test_addresses_run_through_the_network_and_begin_again(number: int, expected: str) -> None:
    assert address(number) == expected
