"""A host's /etc/hosts names every worker and the metadata server, below the lines of this machine."""

from __future__ import annotations

from tests.sim.hosts.site import hosts_of
from tpuctl.sim.hosts.host import etc_hosts


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
