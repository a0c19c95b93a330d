"""What a TPU is by its nodes and its queued resource: over, leaving, or with all of its capacity."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import node, queued_resource
from tpuctl.flows.nodes.inventory import Allocation, Inventory
from tpuctl.nodes import Node, NodeState, QueuedResource, QueueState, owner_label

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
