"""Whether a node can be used: its state, and the hosts that the provider lists."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import node
from tpuctl.errors import StateError
from tpuctl.nodes.queued_resources import require_ready, require_running

MISSING = (
    ("v3-8", (), "no address of its host", "it"),
    ("v3-8", ("",), "no address of its host", "it"),
    ("v3-32", (), "none of its 4 hosts", "them"),
    ("v3-32", ("10.0.0.1", "10.0.0.2", "10.0.0.3"), "3 of its 4 hosts", "them"),
    ("v3-32", ("10.0.0.1", "", "10.0.0.3", "10.0.0.4"), "3 of its 4 hosts", "them"),
    ("v99-16", (), "no address of its host", "it"),
    ("v99-16", ("10.0.0.1", ""), "1 of its 2 hosts", "them"),
)
COMPLETE = (("v3-8", 1), ("v3-32", 4), ("v99-16", 1), ("v99-16", 2), ("v3-8", 2))


def test_a_node_whose_hosts_are_not_all_listed_is_not_ready() -> None:
    """The API may list endpoints late; of a type that nobody knows it alone says how many there are."""
    for accelerator, addresses, missing, pronoun in MISSING:
        partial = node(accelerator=accelerator, addresses=addresses)
        with pytest.raises(StateError) as refused:
            require_ready(partial)
        assert refused.value.message == f"Node 'n1' is its READY, but the provider lists {missing}."
        assert refused.value.hint == f"Wait for {pronoun}: tpuctl wait n1"
        assert require_running(partial) is partial, "it bills, and can be stopped"


def test_a_node_with_an_address_of_every_host_is_ready() -> None:
    for accelerator, hosts in COMPLETE:
        complete = node(accelerator=accelerator, addresses=("10.0.0.1",) * hosts)
        assert require_ready(complete) is complete
        assert (complete.hosts, complete.missing_hosts) == (hosts, "")
