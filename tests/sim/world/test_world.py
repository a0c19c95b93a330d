"""What every call of the API meets first: faults, disabled projects, zones that there are not or are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.tpu.queue.timed_world import NODE, PARENT, pass_time, sent
from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tests.sim.world.played import play
from tpuctl.sim.world import ApiError, Code, World

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
