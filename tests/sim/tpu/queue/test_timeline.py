"""Queued resources over time and over restarts: validity, waiting, and how they continue after a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.sim.tpu.queue.timed_world import (
    CAPACITY,
    NAME,
    NODE,
    PARENT,
    opened,
    pass_time,
    sent,
    settle,
    state,
)
from tests.sim.tpu.recorded_hosts import ManualTime
from tpuctl.sim.world import Code, QueuedResource


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


def test_each_state_takes_its_time(database: Path, time: ManualTime) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            operation = world.queued_resources.create(PARENT, "q", sent())
            states = []
            for _ in range(70):
                await settle()
                states.append(state(world))
                await time.advance(1)
            durations = {name: states.count(name) for name in states}
            assert durations == {"CREATING": 2, "ACCEPTED": 3, "PROVISIONING": 60, "ACTIVE": 5}
            ended = world.operations.get(operation.name)
            assert ended.end_time == operation.create_time + 2
            times = [event.time for event in world.events if event.resource == NAME]
            assert times == sorted(times)

    asyncio.run(story())


@pytest.mark.parametrize(
    "policy",
    [
        {"validUntilDuration": "100s"},
        {"validUntilTime": "2027-01-15T08:01:40.000Z"},
        {"validInterval": {"startTime": "2027-01-15T08:00:00Z", "endTime": "2027-01-15T08:01:40Z"}},
    ],
)
def test_a_request_without_capacity_in_time_fails_and_stays_listed(
    database: Path, time: ManualTime, policy: dict[str, Any]
) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.capacity.limits[CAPACITY] = 0
            world.queued_resources.create(PARENT, "q", sent(queueingPolicy=policy))
            await pass_time(time, 99)
            assert state(world) == "WAITING_FOR_RESOURCES"
            await pass_time(time, 1)
            (failed,) = world.queued_resources.all()
            assert failed.state == "FAILED"
            assert failed.error is not None
            assert failed.error.code == Code.DEADLINE_EXCEEDED
            assert world.nodes.all() == []

    asyncio.run(story())


@pytest.mark.parametrize(
    "policy",
    [
        {"validAfterDuration": "50s"},
        {"validAfterTime": "2027-01-15T08:00:50Z"},
        {"validInterval": {"startTime": "2027-01-15T08:00:50Z", "endTime": "2027-01-15T09:00:00Z"}},
    ],
)
def test_nothing_is_provisioned_before_a_request_is_valid(
    database: Path, time: ManualTime, policy: dict[str, Any]
) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.queued_resources.create(PARENT, "q", sent(queueingPolicy=policy))
            await pass_time(time, 49)
            assert (state(world), world.nodes.all()) == ("WAITING_FOR_RESOURCES", [])
            await pass_time(time, 1)
            assert state(world) == "PROVISIONING"

    asyncio.run(story())


def test_after_a_fall_back_it_waits_before_it_tries_again(database: Path, time: ManualTime) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.faults.add("stockout", zone="europe-west4-a", count=1)
            world.queued_resources.create(PARENT, "q", sent())
            await pass_time(time, 6)
            assert state(world) == "WAITING_FOR_RESOURCES"  # a failure takes no time in this profile
            await pass_time(time, 28)
            assert state(world) == "WAITING_FOR_RESOURCES"
            await pass_time(time, 3)
            assert (state(world), len(world.nodes.all())) == ("PROVISIONING", 1)

    asyncio.run(story())


LIFE: dict[int, str] = {
    1: "CREATING",
    4: "ACCEPTED",
    20: "WAITING_FOR_RESOURCES",
    70: "PROVISIONING",
    150: "ACTIVE",
}
"""Seconds -> the state then of a request that is valid 50 s after it was made."""


@pytest.mark.parametrize("seconds", LIFE)
def test_after_a_restart_every_state_continues(database: Path, time: ManualTime, seconds: int) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.queued_resources.create(PARENT, "q", sent(queueingPolicy={"validAfterDuration": "50s"}))
            await pass_time(time, seconds)
            assert state(world) == LIFE[seconds]
            before = world.queued_resources.get(NAME)
        async with opened(database, time) as world:
            assert same(world.queued_resources.get(NAME), before)
            await pass_time(time, 115 - seconds)
            assert state(world) == "ACTIVE"
            (node,) = world.nodes.all()
            assert (node.state, node.queued_resource) == ("READY", NAME)

    asyncio.run(story())


def test_a_node_that_its_user_deletes_while_it_is_created_suspends_and_fails_nothing(
    database: Path, time: ManualTime
) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.queued_resources.create(PARENT, "q", sent())
            await pass_time(time, 30)
            assert state(world) == "PROVISIONING"
            world.nodes.delete(NODE)
            await pass_time(time, 60)
            suspended = world.queued_resources.get(NAME)
            assert (suspended.state, suspended.initiator, suspended.error) == ("SUSPENDED", "USER", None)

    asyncio.run(story())


def test_a_suspension_and_a_forced_delete_continue_after_a_restart(database: Path, time: ManualTime) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.queued_resources.create(PARENT, "q", sent(spot={}))
            await pass_time(time, 70)
            await world.preempt(NODE)
            await settle()
            assert state(world) == "SUSPENDING"
        async with opened(database, time) as world:
            await pass_time(time, 6)
            assert (state(world), world.queued_resources.get(NAME).initiator) == ("SUSPENDED", "SERVICE")
            operation = world.queued_resources.delete(NAME, force=True)
            await pass_time(time, 3)
        async with opened(database, time) as world:
            assert state(world) == "DELETING"
            await pass_time(time, 30)
            assert world.operations.get(operation.name).done
            assert world.idle()

    asyncio.run(story())


def test_a_reset_continues_after_a_restart(database: Path, time: ManualTime) -> None:
    async def story() -> None:
        async with opened(database, time) as world:
            world.queued_resources.create(PARENT, "q", sent(spot={}))
            await pass_time(time, 70)
            operation = world.queued_resources.reset(NAME)
            await pass_time(time, 2)
        async with opened(database, time) as world:
            await pass_time(time, 24)
            assert world.operations.get(operation.name).queued.state == "ACCEPTED"
            await pass_time(time, 70)
            assert (state(world), len(world.nodes.all())) == ("ACTIVE", 1)

    asyncio.run(story())


def same(queued: QueuedResource, other: QueuedResource) -> bool:
    return all(getattr(queued, field) == getattr(other, field) for field in queued.__dataclass_fields__)
