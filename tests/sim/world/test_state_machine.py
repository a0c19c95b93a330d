"""In which states a call is allowed, and from which states another is reached: as google/cloud/tpu/v2 says.

The tables of the simulator go by state, these go by call and by the state that is reached.
"""

from __future__ import annotations

import pytest

from tpuctl.sim.world.state import (
    CANCELLABLE,
    LOST,
    NODE_ALLOWED,
    NODE_TRANSITIONS,
    QUEUED_RESOURCE_ALLOWED,
    QUEUED_RESOURCE_NEXT,
    SERVING,
    VACANT,
)

NODE_CALLS = {
    # call: states of a node
    "delete": "CREATING READY STOPPED REPAIRING PREEMPTED TERMINATED",
    "preempt": "CREATING READY REPAIRING",
    "update": "READY STOPPED",
    "stop": "READY",
    "start": "STOPPED",
    "get guest attributes": "READY",
    "simulate maintenance event": "READY",
    "perform maintenance": "READY",
}
QUEUE_CALLS = {
    "delete": "CREATING ACCEPTED WAITING_FOR_RESOURCES SUSPENDED FAILED",
    "force delete": "CREATING ACCEPTED WAITING_FOR_RESOURCES PROVISIONING ACTIVE SUSPENDING SUSPENDED FAILED",
    "reset": "ACTIVE SUSPENDED FAILED",
    "perform maintenance": "ACTIVE",
}
REACHED_FROM = {
    # state of a queued resource: the states before it
    "CREATING": "",
    "ACCEPTED": "CREATING SUSPENDING",
    "WAITING_FOR_RESOURCES": "ACCEPTED PROVISIONING",
    "PROVISIONING": "ACCEPTED WAITING_FOR_RESOURCES",
    "ACTIVE": "PROVISIONING",
    "SUSPENDING": "PROVISIONING ACTIVE SUSPENDED FAILED",
    "SUSPENDED": "SUSPENDING",
    "FAILED": "ACCEPTED WAITING_FOR_RESOURCES PROVISIONING",
    "DELETING": QUEUE_CALLS["force delete"],
}
NODE_STATES = {
    "CREATING", "READY", "STOPPING", "STOPPED", "STARTING", "DELETING", "REPAIRING", "PREEMPTED",
    "TERMINATED",
}  # fmt: skip


@pytest.mark.parametrize("call", NODE_CALLS)
def test_a_call_on_a_node_is_allowed_in_its_states(call: str) -> None:
    assert {state for state, calls in NODE_ALLOWED.items() if call in calls} == set(NODE_CALLS[call].split())


@pytest.mark.parametrize("call", QUEUE_CALLS)
def test_a_call_on_a_queued_resource_is_allowed_in_its_states(call: str) -> None:
    states = {state for state, calls in QUEUED_RESOURCE_ALLOWED.items() if call in calls}
    assert states == set(QUEUE_CALLS[call].split())


def test_there_are_no_other_states_and_calls() -> None:
    assert set(NODE_ALLOWED) == NODE_STATES
    assert set().union(*NODE_ALLOWED.values()) == set(NODE_CALLS)
    assert set(QUEUED_RESOURCE_ALLOWED) == set(REACHED_FROM)
    assert set().union(*QUEUED_RESOURCE_ALLOWED.values()) == set(QUEUE_CALLS)


@pytest.mark.parametrize("state", REACHED_FROM)
def test_a_state_of_a_queued_resource_is_reached_from_others(state: str) -> None:
    before = {earlier for earlier, following in QUEUED_RESOURCE_NEXT.items() if state in following}
    assert before == set(REACHED_FROM[state].split())


@pytest.mark.parametrize(
    ("verb", "method", "during", "after"),
    [
        ("create", "CreateNode", "CREATING", "READY"),
        ("delete", "DeleteNode", "DELETING", None),
        ("update", "UpdateNode", None, None),
        ("stop", "StopNode", "STOPPING", "STOPPED"),
        ("start", "StartNode", "STARTING", "READY"),
        ("simulateMaintenanceEvent", "SimulateMaintenanceEvent", None, None),
        ("performMaintenance", "PerformMaintenance", "REPAIRING", "READY"),
    ],
)
def test_an_operation_has_its_states(verb: str, method: str, during: str | None, after: str | None) -> None:
    transition = NODE_TRANSITIONS[verb]
    assert (transition.method, transition.during, transition.after) == (method, during, after)


def test_sets_of_states() -> None:
    assert {"PREEMPTED", "TERMINATED"} == LOST
    assert {"PREEMPTED", "TERMINATED", "STOPPED"} == VACANT
    assert {"READY", "STOPPING", "STOPPED", "STARTING", "REPAIRING"} == SERVING
    assert {"create"} == CANCELLABLE
