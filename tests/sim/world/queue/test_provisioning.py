"""What happens to a queued resource and its nodes, step by step, when something comes in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sim.tpu.queue.timed_world import (
    CAPACITY,
    NAME,
    NODE,
    PARENT,
    TWO,
    Story,
    opened,
    pass_time,
    sent,
    settle,
    state,
)
from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tpuctl.sim.faults import grpc_fault
from tpuctl.sim.world import Code, World
from tpuctl.sim.world.resources import QueuedResource

LATER = f"{PARENT}/queuedResources/later"
ACTIVE = 70
"""Seconds after which a request that nothing delays is ACTIVE."""


def queued(world: World, name: str = NAME) -> QueuedResource:
    return world.queued_resources.get(name)


def node_states(world: World) -> dict[str, str]:
    return {node.name: node.state for node in world.nodes.all()}


async def active(world: World, time: ManualTime, *identifiers: str, **fields: object) -> None:
    """Have a queued resource that is ACTIVE."""
    world.queued_resources.create(PARENT, "q", sent(*identifiers, **fields))
    await pass_time(time, ACTIVE)
    assert state(world) == "ACTIVE"


def test_an_operation_ends_the_one_that_runs(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        creation = world.queued_resources.create(PARENT, "q", sent())
        await pass_time(time, 1)
        deletion = world.queued_resources.delete(NAME, force=False)
        ended = world.operations.get(creation.name)
        assert ended.error is not None
        assert ended.error.code == Code.CANCELLED
        assert not world.operations.get(deletion.name).done
        await pass_time(time, 6)
        done = world.operations.get(deletion.name)
        assert (done.done, done.error) == (True, None)
        assert world.idle()

    play(story)


def test_a_reset_is_the_users_until_the_request_is_queued_again(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time)
        world.queued_resources.reset(NAME)
        assert (state(world), queued(world).initiator) == ("SUSPENDING", "USER")
        await pass_time(time, 26)
        assert (state(world), queued(world).initiator) == ("ACCEPTED", "")
        await pass_time(time, 3)
        assert (state(world), queued(world).requeue) == ("PROVISIONING", False)

    play(story)


def test_a_reset_deletes_what_was_preempted_and_waits_for_no_retry(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time, spot={})
        await world.preempt(NODE)
        await pass_time(time, 6)
        assert (state(world), node_states(world)) == ("SUSPENDED", {NODE: "PREEMPTED"})
        world.capacity.limits[CAPACITY] = 0
        world.queued_resources.reset(NAME)
        await pass_time(time, 25)
        assert (state(world), node_states(world)) == ("ACCEPTED", {})
        await pass_time(time, 4)
        assert state(world) == "WAITING_FOR_RESOURCES"
        world.capacity.limits.clear()
        await pass_time(time, 30)  # a limit tells nobody that it was lifted
        assert (state(world), queued(world).attempts) == ("PROVISIONING", 1)

    play(story)


def test_a_reset_forgets_the_failure(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.faults.add(grpc_fault("tpu.CreateQueuedResource", 9, "not eligible", late=True, count=1))
        world.queued_resources.create(PARENT, "q", sent())
        await pass_time(time, 6)
        failed = queued(world)
        assert failed.state == "FAILED"
        assert failed.error is not None
        assert failed.error.message == "not eligible"
        world.queued_resources.reset(NAME)
        assert queued(world).error is None
        await pass_time(time, 80)
        assert state(world) == "ACTIVE"

    play(story)


def test_a_delete_without_force_leaves_a_preempted_node(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time, spot={})
        await world.preempt(NODE)
        await pass_time(time, 6)
        world.queued_resources.delete(NAME, force=False)
        await pass_time(time, 6)
        assert world.queued_resources.all() == []
        assert node_states(world) == {NODE: "PREEMPTED"}

    play(story)


def test_a_forced_delete_takes_its_time_after_its_nodes_are_gone(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time, "one", "two")
        world.queued_resources.delete(NAME, force=True)
        await pass_time(time, 4)
        assert (state(world), set(node_states(world).values())) == ("DELETING", {"DELETING"})
        await pass_time(time, 20)
        assert world.idle()

    play(story)


def test_a_forced_delete_waits_for_a_node_that_is_being_preempted(tmp_path: Path) -> None:
    async def story() -> None:
        time, hosts = ManualTime(), RecordedHosts()
        async with opened(tmp_path / "world.sqlite", time, hosts) as world:
            await active(world, time, spot={})
            hosts.hold = asyncio.Event()
            preemption = asyncio.create_task(world.preempt(NODE))
            await settle()
            world.queued_resources.delete(NAME, force=True)
            await pass_time(time, 30)
            assert (state(world), node_states(world)) == ("DELETING", {NODE: "READY"})
            hosts.hold.set()
            await preemption
            await settle()
            assert node_states(world) == {NODE: "DELETING"}
            await pass_time(time, 30)
            assert world.idle()

    asyncio.run(story())


def test_a_delete_of_a_node_that_fails_is_tried_again_later(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time)
        world.faults.add(grpc_fault("tpu.DeleteNode", 13, "not now", late=True, count=1))
        world.queued_resources.delete(NAME, force=True)
        await settle()
        assert node_states(world) == {NODE: "READY"}
        await pass_time(time, 29)
        assert node_states(world) == {NODE: "READY"}
        await pass_time(time, 2)
        assert node_states(world) == {NODE: "DELETING"}
        await pass_time(time, 30)
        assert world.idle()

    play(story)


def test_one_deleted_slice_takes_the_others_with_it(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time, "one", "two")
        world.nodes.delete(TWO)
        await settle()
        assert (state(world), queued(world).initiator) == ("SUSPENDING", "USER")
        await pass_time(time, 26)
        assert (state(world), node_states(world)) == ("SUSPENDED", {})
        assert queued(world).initiator == "USER"

    play(story)


def test_a_slice_preempted_while_it_is_created_suspends_the_request(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.queued_resources.create(PARENT, "q", sent("one", "two", spot={}))
        await pass_time(time, 20)
        await world.preempt(TWO)
        await settle()
        assert (state(world), queued(world).initiator) == ("SUSPENDING", "SERVICE")
        await pass_time(time, 26)
        assert (state(world), node_states(world)) == ("SUSPENDED", {TWO: "PREEMPTED"})

    play(story)


@pytest.mark.parametrize(
    ("code", "after"),
    [
        (Code.RESOURCE_EXHAUSTED, "WAITING_FOR_RESOURCES"),
        (Code.FAILED_PRECONDITION, "WAITING_FOR_RESOURCES"),
        (Code.INVALID_ARGUMENT, "FAILED"),
    ],
)
def test_a_node_that_cannot_be_created_deletes_the_others(
    play: Callable[[Story], None], code: Code, after: str
) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.faults.add(grpc_fault("tpu.CreateNode", int(code), "why", late=True, count=1, resource=TWO))
        world.queued_resources.create(PARENT, "q", sent("one", "two"))
        await pass_time(time, 26)
        failure = queued(world).error
        assert (state(world), node_states(world)) == (after, {})
        assert (failure.message if failure else "") == ("why" if after == "FAILED" else "")

    play(story)


def test_a_node_of_the_same_name_that_is_not_its_own_is_left_alone(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time)
        world.nodes.delete(NODE)
        await pass_time(time, 30)
        assert (state(world), node_states(world)) == ("SUSPENDED", {})
        node = sent()["tpu"]["nodeSpec"][0]["node"]
        world.nodes.create(PARENT, "one", node)
        await pass_time(time, 61)
        world.queued_resources.delete(NAME, force=True)
        await pass_time(time, 30)
        assert (world.queued_resources.all(), node_states(world)) == ([], {NODE: "READY"})

    play(story)


def test_nodes_are_made_all_or_none(play: Callable[[Story], None]) -> None:
    """A node that has taken the name of the second one meanwhile."""

    async def story(world: World, time: ManualTime) -> None:
        world.queued_resources.create(PARENT, "q", sent("one", "two"))
        world.nodes.create(PARENT, "two", sent()["tpu"]["nodeSpec"][0]["node"])
        await pass_time(time, 6)
        failed = queued(world)
        assert (failed.state, list(node_states(world))) == ("FAILED", [TWO])
        assert failed.error is not None
        assert failed.error.code == Code.ALREADY_EXISTS
        assert "nodes/two" in failed.error.message

    play(story)


def test_who_waits_is_served_as_soon_as_a_node_is_gone(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.capacity.limits[CAPACITY] = 1
        await active(world, time)
        world.queued_resources.create(PARENT, "later", sent("two"))
        await pass_time(time, 10)
        assert state(world, LATER) == "WAITING_FOR_RESOURCES"
        world.nodes.delete(NODE)
        await pass_time(time, 19)
        assert state(world, LATER) == "WAITING_FOR_RESOURCES"
        await pass_time(time, 1)
        assert state(world, LATER) == "PROVISIONING"

    play(story)


def test_a_request_that_is_valid_too_late_is_never_provisioned(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.queued_resources.create(PARENT, "q", sent(queueingPolicy={"validUntilDuration": "4s"}))
        await pass_time(time, 5)
        failed = queued(world)
        assert (failed.state, node_states(world)) == ("FAILED", {})
        assert failed.error is not None
        assert failed.error.code == Code.DEADLINE_EXCEEDED

    play(story)


def test_maintenance_ends_with_that_of_its_last_node(play: Callable[[Story], None]) -> None:
    async def story(world: World, time: ManualTime) -> None:
        await active(world, time, "one", "two")
        world.faults.add("slow-operation", method="PerformMaintenance", resource=TWO, seconds=40)
        operation = world.queued_resources.perform_maintenance(NAME, [])
        await pass_time(time, 39)
        assert node_states(world) == {NODE: "READY", TWO: "REPAIRING"}
        assert not world.operations.get(operation.name).done
        await pass_time(time, 2)
        ended = world.operations.get(operation.name)
        assert (ended.done, ended.error, state(world)) == (True, None, "ACTIVE")
        assert ended.queued is not None
        assert ended.queued.name == NAME

    play(story)


def test_a_step_that_breaks_is_logged_and_stops_no_other(
    play: Callable[[Story], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World, time: ManualTime) -> None:
        world.queued_resources.create(PARENT, "q", sent())
        await pass_time(time, 3)
        has = world.nodes.has
        monkeypatch.setattr(world.nodes, "has", lambda name: 1 // 0 if name == NODE else has(name))
        world.queued_resources.create(PARENT, "later", sent("two"))
        await pass_time(time, 80)
        assert (state(world), state(world, LATER)) == ("ACCEPTED", "ACTIVE")

    with caplog.at_level(logging.ERROR):
        play(story)
    assert [record.getMessage() for record in caplog.records] == [
        f"queued resource {NAME} is stuck in ACCEPTED"
    ]
