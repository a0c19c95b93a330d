"""Waiting for a TPU that was requested before: which hosts have to answer, and what is said meanwhile."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, MemorySsh, node, queued_resource
from tests.flows.passing_time import PassingTime
from tpuctl.errors import DeadlineError, HostError, NotFoundError
from tpuctl.flows.nodes.up import wait
from tpuctl.nodes import NodeState, QueueState, SshKey

KEY = SshKey("ada", "ssh-ed25519 AAAA")
KNOWN = {KEY.public_key: ""}


def waited(provider: MemoryProvider, ssh: MemorySsh, seconds: float = 60.0) -> list[str]:
    """Return the names of the nodes that are there in the end."""
    allocation = wait(provider, ssh, KEY, "n1", None, seconds, lambda _: None)  # type: ignore[arg-type]
    return [item.name for item in allocation.nodes]


def test_every_host_that_knows_the_key_answers_first() -> None:
    provider, ssh = MemoryProvider(node(metadata=KNOWN, addresses=("10.0.0.1", "10.0.0.2"))), MemorySsh()
    assert waited(provider, ssh) == ["n1"]
    assert sorted(ssh.reached) == [("n1", 0, "host key 0"), ("n1", 1, "host key 1")]
    assert provider.nodes["n1"].metadata == KNOWN


def test_a_host_that_knows_another_key_alone_is_not_asked_and_nothing_is_changed() -> None:
    provider = MemoryProvider(node())
    ssh = MemorySsh(HostError("nobody should be asked"))
    assert waited(provider, ssh) == ["n1"]
    assert provider.nodes == {"n1": node()}


def test_all_hosts_are_listed_first_also_where_they_do_not_know_the_key(passing_time: PassingTime) -> None:
    provider = MemoryProvider(node(accelerator="v4-16"))
    with pytest.raises(DeadlineError, match="the addresses of all hosts of 'n1'"):
        waited(provider, MemorySsh(HostError("nobody should be asked")))


def test_a_host_that_is_another_one_is_an_error() -> None:
    with pytest.raises(HostError, match=r"^It is another host\."):
        waited(
            MemoryProvider(node(metadata=KNOWN)),
            MemorySsh(HostError("It is another host.", host_key="wrong")),
        )


def test_a_name_that_nothing_has_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        waited(MemoryProvider(), MemorySsh())


def test_a_node_that_is_being_created_is_waited_for_as_long_as_a_creation_may_take(
    passing_time: PassingTime,
) -> None:
    with pytest.raises(DeadlineError, match=r"^Waited 1800 s for node 'n1' to be READY\.$"):
        waited(MemoryProvider(node(state=NodeState.CREATING)), MemorySsh(), seconds=600.0)
    assert passing_time.now == pytest.approx(1800.0)


def test_a_request_in_the_queue_is_waited_for_as_long_as_was_asked(passing_time: PassingTime) -> None:
    provider = MemoryProvider()
    provider.queue["q1"] = queued_resource(QueueState.WAITING)
    with pytest.raises(DeadlineError, match=r"^'q1' still waits for capacity in us-central1-b\."):
        waited(provider, MemorySsh(), seconds=600.0)
    assert passing_time.now == pytest.approx(600.0, abs=1.0)
