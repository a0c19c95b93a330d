"""The calls on queued resources: what each refuses, and what it begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.tpu.queue.timed_world import (
    CAPACITY,
    NAME,
    NODE,
    PARENT,
    TWO,
    Story,
    pass_time,
    sent,
    settle,
    state,
)
from tests.sim.tpu.recorded_hosts import ManualTime
from tpuctl.sim.world import Code, World
from tpuctl.sim.world.api_errors import ApiError
from tpuctl.sim.world.resources import RequestContext

AGAIN = RequestContext(request_id="3f0a1e0e-55a5-4f6d-9f3e-6a2a1a3f9f10")


def refusal(code: Code, call: Callable[[], object]) -> str:
    with pytest.raises(ApiError) as raised:
        call()
    assert raised.value.status.code == code
    return raised.value.status.message


def maintained(world: World) -> set[str]:
    return {node.name for node in world.nodes.all() if node.state == "REPAIRING"}


def test_the_same_request_is_the_same_operation(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        calls = world.queued_resources
        first = calls.create(PARENT, "q", sent(), AGAIN)
        assert calls.create(PARENT, "q", sent(), AGAIN).name == first.name
        refusal(Code.ALREADY_EXISTS, lambda: calls.create(PARENT, "q", sent("two")))
        await pass_time(time, 70)
        deletion = calls.delete(NAME, force=True, context=AGAIN)
        await pass_time(time, 30)
        assert calls.all() == []
        assert calls.delete(NAME, force=True, context=AGAIN).name == deletion.name

    play(story)


@pytest.mark.parametrize("identifiers", [("one", "two"), ("two", "one"), ("one",)])
def test_a_name_that_a_node_has_is_refused_wherever_it_stands(
    play: Callable[[Story], None], identifiers: tuple[str, ...]
) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.nodes.create(PARENT, "one", sent()["tpu"]["nodeSpec"][0]["node"])
        call = world.queued_resources.create
        text = refusal(Code.ALREADY_EXISTS, lambda: call(PARENT, "q", sent(*identifiers)))
        assert NODE in text
        assert world.queued_resources.all() == []

    play(story)


def test_a_name_of_another_collection_is_no_name(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        calls = world.queued_resources
        refusal(Code.NOT_FOUND, lambda: calls.get(NAME))
        refusal(Code.INVALID_ARGUMENT, lambda: calls.get(NODE))
        refusal(Code.INVALID_ARGUMENT, lambda: calls.create("projects/p", "q", sent()))

    play(story)


@pytest.mark.parametrize("parent", ["projects/p", f"{PARENT}/nodes", ""])
def test_it_is_created_in_a_zone(play: Callable[[Story], None], parent: str) -> None:
    async def story(world: World, time: ManualTime) -> None:
        call = world.queued_resources.create
        text = refusal(Code.INVALID_ARGUMENT, lambda: call(parent, "q", sent()))
        assert f"{parent}/queuedResources/q" in text
        text = refusal(Code.INVALID_ARGUMENT, lambda: call(PARENT, "a b", sent()))
        assert "Invalid queued resource ID" in text

    play(story)


def test_what_exceeds_a_quota_is_not_queued(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.faults.add("quota", limit=8)
        world.queued_resources.create(PARENT, "q", sent())
        refusal(Code.RESOURCE_EXHAUSTED, lambda: world.queued_resources.create(PARENT, "r", sent("two")))
        assert [one.name for one in world.queued_resources.all()] == [NAME]

    play(story)


def test_pages_leave_out_zones_only_where_all_are_listed(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        calls, everywhere = world.queued_resources, "projects/rehearsal/locations/-"
        for name in ("a", "b", "c"):
            calls.create(PARENT, name, sent(name))
        first, token = calls.page(everywhere, 2, "", ["us-central1-a"])
        rest, end = calls.page(everywhere, 2, token, ["us-central1-a"])
        assert ([one.name[-1] for one in first], [one.name[-1] for one in rest], end) == (
            ["a", "b"],
            ["c"],
            "",
        )
        assert calls.page(everywhere, 2, "", ["europe-west4-a"]) == ([], "")

    play(story)


def test_a_delete_without_force_is_refused_where_there_are_nodes(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        calls = world.queued_resources
        calls.create(PARENT, "q", sent())
        await pass_time(time, 20)
        for _ in range(2):
            text = refusal(Code.FAILED_PRECONDITION, lambda: calls.delete(NAME, force=False))
            assert text.startswith(f"delete is not supported for the queued resource {NAME} while in state ")
            assert "set force to delete its nodes, too" in text
            await pass_time(time, 60)
        assert state(world) == "ACTIVE"

    play(story)


def test_a_delete_without_force_is_taken_once_its_nodes_are_gone(play: Callable[[Story], None]) -> None:
    """Also in a state that refuses it otherwise: SUSPENDING."""

    async def story(world: World, time: ManualTime) -> None:
        calls = world.queued_resources
        calls.create(PARENT, "q", sent())
        await pass_time(time, 70)
        world.nodes.delete(NODE)
        await pass_time(time, 20)
        assert (state(world), world.nodes.all()) == ("SUSPENDED", [])
        calls.reset(NAME)
        await settle()
        assert state(world) == "SUSPENDING"
        calls.delete(NAME, force=False)
        await pass_time(time, 6)
        assert world.idle()

    play(story)


@pytest.mark.parametrize("force", [False, True])
def test_what_is_being_deleted_is_not_deleted_again(play: Callable[[Story], None], force: bool) -> None:
    async def story(world: World, time: ManualTime) -> None:
        calls = world.queued_resources
        calls.create(PARENT, "q", sent())
        operation = calls.delete(NAME, force=False)
        assert state(world) == "DELETING"
        refusal(Code.FAILED_PRECONDITION, lambda: calls.delete(NAME, force=force))
        await pass_time(time, 6)
        assert world.operations.get(operation.name).error is None
        assert world.idle()

    play(story)


def test_a_reset_needs_a_state_that_allows_it(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.capacity.limits[CAPACITY] = 0
        world.queued_resources.create(PARENT, "q", sent())
        await pass_time(time, 10)
        text = refusal(Code.FAILED_PRECONDITION, lambda: world.queued_resources.reset(NAME))
        assert "while in state WAITING_FOR_RESOURCES" in text
        assert "set force" not in text
        assert world.operations.running() == []

    play(story)


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [([], {NODE, TWO}), (["two"], {TWO}), ([NODE], {NODE}), (["one", TWO], {NODE, TWO})],
)
def test_maintenance_is_of_the_nodes_that_are_named_or_of_all(
    play: Callable[[Story], None], asked: list[str], nodes: set[str]
) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.queued_resources.create(PARENT, "q", sent("one", "two"))
        await pass_time(time, 70)
        world.faults.add("slow-operation", method="PerformMaintenance", seconds=40)
        operation = world.queued_resources.perform_maintenance(NAME, asked)
        assert operation.target == NAME
        await settle()
        assert maintained(world) == nodes

    play(story)


def test_maintenance_of_a_node_that_it_does_not_have_begins_nothing(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        call = world.queued_resources.perform_maintenance
        world.queued_resources.create(PARENT, "q", sent("one", "two"))
        await pass_time(time, 5)
        refusal(Code.FAILED_PRECONDITION, lambda: call(NAME, []))
        await pass_time(time, 65)
        text = refusal(Code.INVALID_ARGUMENT, lambda: call(NAME, ["one", "x", "y"]))
        assert f"{NAME} has no node x, y [" in text
        assert (maintained(world), world.operations.running()) == (set(), [])

    play(story)
