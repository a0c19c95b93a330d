"""What every call of the API meets first: faults, disabled projects, zones that there are not or are lost.

In which states a call is allowed, and from which states another is reached: as google/cloud/tpu/v2 says.

The tables of the simulator go by state, these go by call and by the state that is reached.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.tpu.queue.timed_world import NODE, PARENT, pass_time, sent
from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tests.sim.world.played import play
from tpuctl.sim.world import ApiError, Code, World
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

ALL_ZONES = "projects/rehearsal/locations/-"
LOST_ZONE = "projects/rehearsal/locations/us-central1-b"


def answer(world: World, method: str, resource: str) -> tuple[int, str] | None:
    """Return code and text with which a call is rejected; None if it is not."""
    try:
        world.before_call(method, resource)
    except ApiError as error:
        return error.status.code, error.status.message
    return None


def test_a_call_is_noted_with_its_request(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        world.before_call("CreateNode", PARENT, {"nodeId": "one"})
        (event,) = world.events
        assert (event.kind, event.what, event.resource, event.body) == (
            "request", "CreateNode", PARENT, {"nodeId": "one"},
        )  # fmt: skip

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("method", "resource", "place"),
    [
        ("GetNode", NODE, None),
        ("ListNodes", PARENT, None),
        ("ListLocations", "projects/rehearsal", None),
        ("ListNodes", ALL_ZONES, None),
        ("ListQueuedResources", ALL_ZONES, None),
        ("ListOperations", ALL_ZONES, None),
        ("ListAcceleratorTypes", ALL_ZONES, "-"),
        ("GetNode", "projects/rehearsal/locations/mars/nodes/one", "mars"),
        ("ListNodes", "projects/rehearsal/locations/mars", "mars"),
    ],
)
def test_a_call_is_of_a_zone_that_there_is_or_of_all_where_it_takes_them(
    tmp_path: Path, method: str, resource: str, place: str | None
) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        expected = Code.PERMISSION_DENIED, f"Location {place} is not found or access is unauthorized."
        assert answer(world, method, resource) == (expected if place else None)

    play(tmp_path, story)


def test_an_api_is_off_in_one_project(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        world.disabled_projects.add("rehearsal")
        for resource in (NODE, ALL_ZONES):
            answered = answer(world, "ListNodes", resource)
            assert answered is not None
            assert answered[0] == Code.PERMISSION_DENIED
            assert answered[1].startswith("Cloud TPU API has not been used in project rehearsal before")
        assert answer(world, "GetNode", NODE.replace("rehearsal", "other")) is None

    play(tmp_path, story)


def test_a_lost_zone_answers_no_call_and_is_named_by_lists_of_all(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        assert world.unreachable_zones(ALL_ZONES) == []
        world.faults.add("unreachable", zone="us-central1-b", project="rehearsal")
        assert answer(world, "GetNode", f"{LOST_ZONE}/nodes/one") == (
            Code.UNAVAILABLE,
            "The location could not be reached.",
        )
        assert answer(world, "GetNode", NODE) is None
        assert answer(world, "ListNodes", ALL_ZONES) is None
        assert world.unreachable_zones(ALL_ZONES) == ["us-central1-b"]
        assert world.unreachable_zones(LOST_ZONE) == []
        assert world.unreachable_zones("projects/other/locations/-") == []

    play(tmp_path, story)


def test_a_fault_rejects_a_call_or_loses_its_answer(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        world.faults.add("unavailable", method="GetNode", count=1)
        world.after_call("GetNode", NODE)
        unavailable = Code.UNAVAILABLE, "The service is currently unavailable."
        assert answer(world, "GetNode", NODE) == unavailable
        world.faults.add("unavailable", method="GetNode", when="after", count=1)
        assert answer(world, "GetNode", NODE) is None
        with pytest.raises(ApiError) as raised:
            world.after_call("GetNode", NODE)
        assert (raised.value.status.code, raised.value.status.message) == unavailable

    play(tmp_path, story)


def test_a_world_is_idle_without_nodes_requests_and_operations(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        assert world.idle()
        node = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
        world.nodes.create(PARENT, "one", node)
        assert not world.idle()
        await pass_time(time, 60, step=30)
        assert not world.idle(), "there is a node"
        world.nodes.delete(NODE)
        await pass_time(time, 20)
        assert world.idle()
        world.queued_resources.create(PARENT, "q", sent())
        world.capacity.limits["europe-west4-a", "v3-8"] = 0
        await pass_time(time, 10)
        assert (world.nodes.all(), world.idle()) == ([], False)

    play(tmp_path, story)


def test_a_fault_that_fires_is_an_event_of_the_world(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        assert world.faults.events is world.events
        world.faults.add("unavailable")
        assert answer(world, "GetNode", NODE) is not None
        assert [event.kind for event in world.events] == ["request", "fault"]

    play(tmp_path, story)


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
