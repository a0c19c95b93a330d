"""Entries for OpenSSH: the names of workers in them, and whose nodes get one."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tpuctl.errors import DeadlineError, NotFoundError, StateError
from tpuctl.flows.remote.openssh import entry, find_nodes
from tpuctl.nodes import NodeState, QueueState


def test_an_entry_names_every_worker_and_the_node_is_worker_0() -> None:
    one = entry(node("n2", addresses=("10.0.0.1", "10.0.0.2")), "project p", ".sim", {"User": "ada"})
    assert one.text == (
        "# tpuctl: node n2 of project p\n"
        "Host n2.sim n2.w0.sim n2.w1.sim\n"
        "    HostName %h.tpuctl\n"
        "    Port 22\n"
        "    User ada\n"
    )
    assert one.file_name == "n2.sim"


def test_the_zone_is_in_the_names_where_another_has_such_a_node() -> None:
    one = entry(node(), "project p", "", {}, ZONE)
    assert (one.title, one.hosts) == (
        f"# tpuctl: node n1.{ZONE} of project p",
        (f"n1.{ZONE}", f"n1.{ZONE}.w0"),
    )


@pytest.mark.parametrize(("accelerator", "hosts"), [("v3-8", 1), ("v3-32", 4)])
def test_a_node_without_addresses_yet_has_the_workers_of_its_type(accelerator: str, hosts: int) -> None:
    one = entry(node(accelerator=accelerator, addresses=()), "project p", "", {})
    assert one.hosts == ("n1", *(f"n1.w{worker}" for worker in range(hosts)))


class TestNodes:
    def test_of_all_are_the_owners_that_are_not_over(self) -> None:
        provider = MemoryProvider(
            node(),
            node("n2", NodeState.CREATING),
            node("over", NodeState.PREEMPTED),
            node("theirs", labels={}),
        )
        nodes, silent = find_nodes(provider, [], "ada", None, everything=True)
        assert ([item.name for item in nodes], silent) == (["n1", "n2"], ())

    def test_without_a_name_are_those_of_the_only_one(self) -> None:
        provider = MemoryProvider(node("over", NodeState.PREEMPTED), node(), node("theirs", labels={}))
        assert [item.name for item in find_nodes(provider, [], "ada", None)[0]] == ["n1"]
        provider.nodes["n2"] = node("n2")
        with pytest.raises(StateError, match=r"^You have 2 TPUs: n1, n2\.$"):
            find_nodes(provider, [], "ada", None)

    def test_are_listed_although_a_zone_does_not_answer(self) -> None:
        provider = MemoryProvider(node())
        provider.unreachable = ("us-east1-d",)
        nodes, silent = find_nodes(provider, [], "ada", None, everything=True)
        assert ([item.name for item in nodes], silent) == (["n1"], ("us-east1-d",))

    def test_by_name_are_of_anybody_and_in_any_state(self) -> None:
        provider = MemoryProvider(node("over", NodeState.PREEMPTED), node("theirs", labels={}), node())
        nodes, silent = find_nodes(provider, ["theirs", "over"], "ada", None)
        assert ([item.name for item in nodes], silent) == (["theirs", "over"], ())

    def test_of_a_queued_resource_that_has_them_are_found_by_its_name(self) -> None:
        made = node("q1-0", queued_resource="q1")
        provider = MemoryProvider(made)
        provider.queue["q1"] = queued_resource(QueueState.ACTIVE, nodes=(made.id,))
        assert find_nodes(provider, ["q1"], "ada", None)[0] == [made]

    def test_of_a_queued_resource_that_waits_are_an_error_by_name(self) -> None:
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource()
        with pytest.raises(StateError) as caught:
            find_nodes(provider, ["q1"], "ada", None)
        assert caught.value.message == "'q1' has no hosts: it is its WAITING."
        assert caught.value.hint == "Wait for it: tpuctl wait q1"

    def test_that_do_not_exist_are_an_error(self) -> None:
        provider = MemoryProvider(node(labels={}))
        with pytest.raises(NotFoundError, match=r"^You have no TPU\.$"):
            find_nodes(provider, [], "ada", None)
        provider.unreachable = ("us-east1-d",)
        with pytest.raises(DeadlineError, match=r"^No answer from us-east1-d: your TPU may be there\.$"):
            find_nodes(provider, [], "ada", None)
