"""What a TPU is by its nodes and its queued resource: over, leaving, or with all of its capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tpuctl.flows.nodes.lookup import Allocation, Inventory, grouped, take_inventory
from tpuctl.nodes import (
    Node,
    NodeList,
    NodeState,
    QueuedResource,
    QueuedResourceList,
    QueueState,
    owner_label,
)
from tpuctl.nodes.candidates import RACE_LABEL

SLICES = (node("q1-0", queued_resource="q1"), node("q1-1", queued_resource="q1"))


def queued(state: QueueState = QueueState.ACTIVE) -> QueuedResource:
    """Return a queued resource of two slices."""
    return queued_resource(state, nodes=tuple(item.id for item in SLICES))


@pytest.mark.parametrize(
    ("nodes", "request_for_them", "has_capacity"),
    [
        ((node(),), None, True),
        ((node(state=NodeState.CREATING),), None, True),
        ((node(state=NodeState.PREEMPTED),), None, False),
        ((node(state=NodeState.DELETING),), None, False),
        ((), queued(QueueState.WAITING), False),
        ((), queued(QueueState.ACTIVE), False),
        (SLICES[:1], queued(), False),
        (SLICES, queued(), True),
        (SLICES, queued(QueueState.PROVISIONING), False),
        (SLICES, queued(QueueState.DELETING), False),
        (SLICES, queued(QueueState.SUSPENDED), False),
        ((SLICES[0], node("q1-1", NodeState.PREEMPTED, queued_resource="q1")), queued(), False),
    ],
)
def test_it_has_capacity_with_all_of_its_nodes(
    nodes: tuple[Node, ...], request_for_them: QueuedResource | None, has_capacity: bool
) -> None:
    assert Allocation(nodes, request_for_them).has_capacity is has_capacity


@pytest.mark.parametrize(
    ("item", "is_over", "is_leaving"),
    [
        (Allocation((node(),)), False, False),
        (Allocation((node(state=NodeState.STOPPED),)), False, False),
        (Allocation((node(state=NodeState.PREEMPTED),)), True, False),
        (Allocation((node(state=NodeState.DELETING),)), True, True),
        (Allocation(SLICES, queued()), False, False),
        (Allocation((), queued(QueueState.WAITING)), False, False),
        (Allocation((), queued(QueueState.FAILED)), True, False),
        (Allocation((), queued(QueueState.SUSPENDED)), True, False),
        (Allocation(SLICES, queued(QueueState.DELETING)), True, True),
        (Allocation((node("q1-0", NodeState.DELETING), SLICES[1]), queued()), True, False),
    ],
)
def test_it_is_over_once_it_gives_nobody_a_tpu(item: Allocation, is_over: bool, is_leaving: bool) -> None:
    assert (item.is_over, item.is_leaving) == (is_over, is_leaving)


def test_what_tpuctl_created_for_others_can_be_left_out() -> None:
    foreign = node("foreign", labels={})
    theirs = node("theirs", labels={**node().labels, "tpuctl-owner": owner_label("bob")})
    inventory = Inventory(tuple(Allocation((item,)) for item in (node(), foreign, theirs)), ("us-east1-d",))
    own = inventory.without_others("ada")
    assert (own.nodes, own.unreachable) == ((node(), foreign), ("us-east1-d",))


B, D = "us-central1-b", "us-east1-d"


def elsewhere(name: str, zone: str, **fields: object) -> Node:
    return node(name, id=replace(node().id, name=name, zone=zone, uid=f"{zone}/{name}"), **fields)


class TestInventory:
    def test_groups_the_nodes_of_a_queued_resource_in_its_zone(self) -> None:
        made, same_name = elsewhere("n1", B, queued_resource="q1"), elsewhere("n1", D, queued_resource="q1")
        alone = elsewhere("n2", B)
        inventory = grouped(NodeList((alone, same_name, made)), QueuedResourceList((queued_resource(),)))
        assert [(item.name, item.zone, item.nodes) for item in inventory.allocations] == [
            ("n1", D, (same_name,)), ("n2", B, (alone,)), ("q1", B, (made,)),
        ]  # fmt: skip
        assert inventory.nodes == (same_name, alone, made)

    def test_is_in_the_order_of_names_and_zones(self) -> None:
        nodes = (elsewhere("b", B), elsewhere("a", D), elsewhere("a", B))
        inventory = grouped(NodeList(nodes), QueuedResourceList(()))
        assert [(item.name, item.zone) for item in inventory.allocations] == [("a", B), ("a", D), ("b", B)]

    def test_names_each_zone_that_did_not_answer_once(self) -> None:
        nodes, queue = NodeList((), (D, B)), QueuedResourceList((), (B, "asia-east1-c"))
        assert grouped(nodes, queue).unreachable == ("asia-east1-c", B, D)

    def test_of_a_provider_is_that_of_a_zone_or_of_all(self) -> None:
        provider = MemoryProvider(node("n1", queued_resource="q1"), elsewhere("n2", D))
        provider.queue["q1"] = queued_resource()
        provider.unreachable = ("asia-east1-c",)
        assert [item.name for item in take_inventory(provider).allocations] == ["n2", "q1"]
        assert [item.name for item in take_inventory(provider, D).allocations] == ["n2"]
        assert take_inventory(provider, B).unreachable == ("asia-east1-c",)


class TestNames:
    def test_are_those_of_the_queued_resource_and_of_its_nodes_made_or_to_be_made(self) -> None:
        assert Allocation((), queued()).names == {"q1", "q1-0", "q1-1"}
        assert Allocation((node("late", queued_resource="q1"),), queued_resource()).names == {
            "q1", "n1", "late",
        }  # fmt: skip
        assert Allocation((node(),)).names == {"n1"}

    def test_the_first_is_that_of_what_was_asked_for(self) -> None:
        item = Allocation((node("n9", labels={}),), queued_resource())
        assert (item.name, item.zone, item.managed, item.is_owned_by("ada")) == ("q1", B, True, True)
        assert item.labels == queued_resource().labels
        alone = Allocation((node(labels={}),))
        assert (alone.managed, alone.is_owned_by("ada"), alone.owner) == (False, False, "")

    def test_the_command_that_deletes_it_is_tpuctls_or_terraforms(self) -> None:
        assert Allocation((node(),)).deletion == "tpuctl down n1"
        kept = Allocation((node(labels={"managed-by": "terraform"}),))
        assert kept.is_kept_by_terraform
        assert "terraform" in kept.deletion

    def test_a_search_in_several_zones_is_named_by_its_label(self) -> None:
        raced = node(labels={**node().labels, RACE_LABEL: "r1"})
        assert (Allocation((raced,)).race, Allocation((node(),)).race) == ("r1", "")

    def test_the_oldest_is_first_and_of_one_age_the_first_zone(self) -> None:
        old, young = elsewhere("n1", D, created_at=1.0), elsewhere("n1", B, created_at=2.0)
        twin = elsewhere("n1", B, created_at=1.0)
        items = [Allocation((item,)) for item in (young, old, twin)]
        assert [item.nodes for item in sorted(items, key=lambda item: item.age_order)] == [
            (twin,), (old,), (young,),
        ]  # fmt: skip
