"""What becomes of a node and its hosts: operations that end, fail, are cancelled or last over a restart."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sim.tpu.queue.timed_world import NODE, PARENT, TWO, opened, pass_time, settle
from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tests.sim.world.played import play
from tpuctl.sim.records import Host
from tpuctl.sim.world import Code, World
from tpuctl.sim.world.resources import Node, Operation

FIELDS: dict[str, Any] = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
DAY = 24 * 3600


async def ready(world: World, time: ManualTime, **fields: Any) -> Node:
    """Return a node that is READY."""
    world.nodes.create(PARENT, "one", FIELDS | fields)
    await pass_time(time, 60, step=30)
    node = world.nodes.get(NODE)
    assert node.state == "READY"
    return node


def ended(world: World, begun: Operation) -> tuple[bool, int | None]:
    """Return whether an operation has ended, and the code of its error."""
    now = world.operations.get(begun.name)
    return now.done, now.error.code if now.error else None


def transitions(world: World) -> list[str]:
    return [event.what for event in world.events if event.kind == "transition"]


def test_each_operation_passes_through_its_states(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time)
        nodes = world.nodes
        for begin in (nodes.stop, nodes.start, nodes.perform_maintenance):
            begun = begin(NODE)
            await settle()
            assert ended(world, begun) == (True, None)
            assert world.operations.get(begun.name).result == world.nodes.get(NODE)
        assert hosts.calls == [
            ("start", "one"), ("stop", "one"), ("start", "one"), ("stop", "one"), ("start", "one"),
        ]  # fmt: skip
        begun = nodes.delete(NODE)
        await pass_time(time, 19)
        assert ended(world, begun) == (False, None)
        await pass_time(time, 1)
        assert ended(world, begun) == (True, None)
        assert (hosts.calls[-1], hosts.up, world.nodes.has(NODE)) == (("remove", "one"), {}, False)
        assert transitions(world) == [
            "CREATING", "READY", "STOPPING", "STOPPED", "STARTING", "READY", "REPAIRING", "READY",
            "DELETING", "DELETED",
        ]  # fmt: skip

    play(tmp_path, story)


def test_a_node_is_healthy_while_its_hosts_are_up(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        world.nodes.create(PARENT, "one", FIELDS)
        health = [world.nodes.get(NODE).health]
        await pass_time(time, 60, step=30)
        health.append(world.nodes.get(NODE).health)
        world.nodes.stop(NODE)
        await settle()
        health.append(world.nodes.get(NODE).health)
        world.nodes.start(NODE)
        await settle()
        health.append(world.nodes.get(NODE).health)
        await world.preempt(NODE)
        health.append(world.nodes.get(NODE).health)
        none = "HEALTH_UNSPECIFIED"
        assert health == [none, "HEALTHY", none, "HEALTHY", none]

    play(tmp_path, story)


def test_announced_maintenance_has_its_windows_until_it_is_performed(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        time.now = 1_767_322_800.0 - 60  # 2026-01-02T03:00:00Z, when the node is READY
        await ready(world, time)
        world.nodes.simulate_maintenance(NODE, [])
        await settle()
        assert world.nodes.get(NODE).maintenance == {
            "type": "UNSCHEDULED",
            "canReschedule": True,
            "maintenanceStatus": "PENDING",
            "windowStartTime": "2026-01-02T03:00:00Z",
            "windowEndTime": "2026-01-02T04:00:00Z",
            "latestWindowStartTime": "2026-01-03T03:00:00Z",
        }
        assert world.nodes.get(NODE).maintenance_workers == (0,)
        world.nodes.perform_maintenance(NODE)
        await settle()
        node = world.nodes.get(NODE)
        assert (node.state, node.health, node.maintenance, node.maintenance_workers) == (
            "READY", "HEALTHY", None, (),
        )  # fmt: skip

    play(tmp_path, story)


@pytest.mark.parametrize("end", ["stop", "preempt"])
def test_a_notice_ends_with_the_hosts(tmp_path: Path, end: str) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time)
        world.nodes.simulate_maintenance(NODE, [])
        await settle()
        if end == "stop":
            world.nodes.stop(NODE)
            await settle()
        else:
            await world.preempt(NODE)
        node = world.nodes.get(NODE)
        assert (node.maintenance, node.maintenance_workers) == (None, ())

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "mask", "told"),
    [
        ({"metadata": {"a": "1"}}, "metadata", True),
        ({"networkConfig": {"enableExternalIps": True}}, "network_config.enable_external_ips", True),
        ({"labels": {"a": "1"}}, "labels", False),
        ({"description": "d"}, "description", False),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_hosts_that_are_up_take_over_metadata_and_addresses(
    tmp_path: Path, fields: dict[str, Any], mask: str, told: bool, stopped: bool
) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time)
        if stopped:
            world.nodes.stop(NODE)
            await settle()
        world.nodes.update(NODE, fields, [mask])
        await settle()
        assert (("metadata", "one") in hosts.calls) is (told and not stopped)
        ((name, value),) = fields.items()
        assert dict(world.nodes.get(NODE).spec)[name] == value

    play(tmp_path, story)


def test_a_create_whose_hosts_do_not_start_fails_and_leaves_nothing(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        hosts.failure = OSError("no port")
        begun = world.nodes.create(PARENT, "one", FIELDS)
        await pass_time(time, 60, step=30)
        assert ended(world, begun) == (True, Code.INTERNAL)
        error = world.operations.get(begun.name).error
        assert error is not None
        assert error.message == "Internal error in the simulator: OSError: no port"
        assert (hosts.calls, world.nodes.has(NODE)) == ([("start", "one"), ("remove", "one")], False)

    play(tmp_path, story)


def test_a_start_whose_hosts_do_not_start_leaves_the_node_stopped(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time)
        world.nodes.stop(NODE)
        await settle()
        hosts.failure = OSError("no port")
        begun = world.nodes.start(NODE)
        await settle()
        assert ended(world, begun) == (True, Code.INTERNAL)
        assert world.operations.get(begun.name).result is None
        assert (world.nodes.get(NODE).state, hosts.calls[-1]) == ("STOPPED", ("start", "one"))
        hosts.failure = None
        world.nodes.start(NODE)
        await settle()
        assert world.nodes.get(NODE).state == "READY"

    play(tmp_path, story)


class StubbornHosts(RecordedHosts):
    """Hosts that neither start nor stop, which they find out when they are let."""

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        await super().start(hosts, metadata)
        if self.hold:
            raise OSError("no port")

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool, grace: float = 30.0) -> None:
        raise OSError("no end")


def test_hosts_that_do_not_stop_hold_up_no_preemption_and_no_failed_create(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time)
        await world.preempt(NODE)
        assert world.nodes.get(NODE).state == "PREEMPTED"
        hosts.failure = OSError("no port")
        begun = world.nodes.create(PARENT, "two", FIELDS)
        await pass_time(time, 60, step=30)
        assert ended(world, begun) == (True, Code.INTERNAL)
        assert not world.nodes.has(TWO)
        told = [(record.getMessage(), record.exc_info) for record in caplog.records]
        assert [(text, str(reason and reason[1])) for text, reason in told] == [
            (f"the hosts of {NODE} did not stop", "no end"),
            (f"operation {begun.name} failed", "no port"),
            (f"the hosts of {TWO} did not stop", "no end"),
        ]

    with caplog.at_level(logging.ERROR, "tpuctl"):
        play(tmp_path, story, StubbornHosts())


def test_the_failure_of_hosts_that_are_not_wanted_any_more_is_no_news(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        hosts.hold = asyncio.Event()
        begun = world.nodes.create(PARENT, "one", FIELDS)
        await pass_time(time, 60, step=30)
        world.nodes.delete(NODE)
        await settle()
        hosts.hold.set()
        await pass_time(time, 20)  # until nothing holds the task of the start any more
        assert ended(world, begun) == (True, Code.CANCELLED)
        gc.collect()
        assert told == []

    play(tmp_path, story, StubbornHosts())


def test_a_delete_ends_although_hosts_do_not_stop(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        world.nodes.create(PARENT, "one", FIELDS)
        deleted = world.nodes.delete(NODE)
        await pass_time(time, 20)
        assert ended(world, deleted) == (True, Code.INTERNAL)
        assert world.nodes.get(NODE).state == "TERMINATED"

    play(tmp_path, story, StubbornHosts())


@pytest.mark.parametrize(
    ("begin", "state"),
    [("create", "TERMINATED"), ("start", "STOPPED"), ("stop", "STOPPED"), ("none", "READY")],
)
def test_a_delete_that_fails_leaves_the_node_as_it_was_or_ended(
    tmp_path: Path, begin: str, state: str
) -> None:
    """A delete cancels what runs, which does not go on when the delete fails."""

    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        if begin == "create":
            cancelled = world.nodes.create(PARENT, "one", FIELDS)
        else:
            await ready(world, time)
        if begin == "start":
            world.nodes.stop(NODE)
            await settle()
        if begin in ("start", "stop"):
            world.faults.add("stuck-operation", method="S*Node")
            cancelled = getattr(world.nodes, begin)(NODE)
            await settle()
        world.faults.add("failed-operation", method="DeleteNode", code="ABORTED")
        deleted = world._lifecycle.begin("delete", world.nodes.get(NODE))
        if begin != "none":
            assert ended(world, cancelled) == (True, Code.CANCELLED)
        await settle()
        assert ended(world, deleted) == (True, Code.ABORTED)
        assert world.nodes.get(NODE).state == state
        assert (hosts.calls[-1:] == [("stop", "one")]) is (begin != "none")

    play(tmp_path, story)


def test_an_operation_waits_for_the_fault_that_holds_it(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        held = world.faults.add("stuck-operation", method="CreateNode")
        begun = world.nodes.create(PARENT, "one", FIELDS)
        await pass_time(time, 300, step=60)
        assert ended(world, begun) == (False, None)
        world.faults.remove(held.id)
        await settle()
        assert ended(world, begun) == (True, None)

    play(tmp_path, story)


def test_an_operation_that_is_to_be_slow_takes_so_much_longer(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        world.faults.add("slow-operation", method="CreateNode", seconds=10)
        begun = world.nodes.create(PARENT, "one", FIELDS)
        await pass_time(time, 69)
        assert ended(world, begun) == (False, None)
        await pass_time(time, 1)
        assert ended(world, begun) == (True, None)

    play(tmp_path, story)


def test_an_operation_that_is_to_fail_does_so_in_the_time_of_the_fault(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        world.faults.add("failed-operation", method="CreateNode", code="ABORTED", seconds=5)
        begun = world.nodes.create(PARENT, "one", FIELDS)
        await pass_time(time, 4)
        assert ended(world, begun) == (False, None)
        await pass_time(time, 1)
        assert ended(world, begun) == (True, Code.ABORTED)
        assert not world.nodes.has(NODE)

    play(tmp_path, story)


def test_a_cancel_ends_a_create_and_nothing_else(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        begun = world.nodes.create(PARENT, "one", FIELDS)
        await pass_time(time, 1)
        world.cancel_operation(begun.name)
        await settle()
        assert ended(world, begun) == (True, Code.CANCELLED)
        assert (world.nodes.has(NODE), hosts.calls) == (False, [("remove", "one")])
        world.cancel_operation(begun.name)  # it has ended
        await settle()
        assert world.operations.get(begun.name).cancel_requested
        await ready(world, time)
        deleted = world.nodes.delete(NODE)
        world.cancel_operation(deleted.name)
        await pass_time(time, 20)
        assert ended(world, deleted) == (True, None)

    play(tmp_path, story)


def test_a_cancel_of_an_operation_that_has_ended_is_not_even_noted(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time)
        (created,) = world.operations.all(PARENT)
        world.cancel_operation(created.name)
        await settle()
        assert not world.operations.get(created.name).cancel_requested
        assert world.nodes.get(NODE).state == "READY"

    play(tmp_path, story)


def test_a_preemption_ends_the_update_that_runs(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time)
        world.faults.add("stuck-operation", method="UpdateNode")
        begun = world.nodes.update(NODE, {"description": "d"}, ["description"])
        await settle()
        await world.preempt(NODE)
        error = world.operations.get(begun.name).error
        assert error is not None
        assert error.message.startswith(
            "Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID:"
        )
        assert (world.nodes.get(NODE).state, hosts.calls[-1]) == ("PREEMPTED", ("stop", "one"))

    play(tmp_path, story)


def test_a_node_whose_hosts_are_just_being_taken_counts_as_preempted(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        node = await ready(world, time)
        hosts.hold = asyncio.Event()
        preemption = asyncio.ensure_future(world.preempt(NODE))
        await settle()
        assert world._lifecycle.is_being_reclaimed(node)
        assert world.nodes.get(NODE).state == "READY"
        with pytest.raises(Exception, match="stop is not supported while in state PREEMPTED"):
            world.nodes.stop(NODE)
        hosts.hold.set()
        await preemption
        assert not world._lifecycle.is_being_reclaimed(node)
        assert world.nodes.get(NODE).state == "PREEMPTED"

    play(tmp_path, story)


def test_a_delete_takes_over_from_a_preemption(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time)
        hosts.hold = asyncio.Event()
        preemption = asyncio.ensure_future(world.preempt(NODE))
        await settle()
        world.nodes.delete(NODE)
        hosts.hold.set()
        await preemption
        await pass_time(time, 20)
        assert not world.nodes.has(NODE)
        assert "PREEMPTED" not in transitions(world)

    play(tmp_path, story)


def test_a_notice_of_a_preemption_comes_before_it(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        node = await ready(world, time)
        preemption = asyncio.ensure_future(world.preempt(NODE, notice=30))
        await settle()
        assert hosts.notices == [(node.hosts()[0].hostname, "NONE", True)]
        assert [event.what for event in world.events if event.kind == "notice"] == ["PREEMPTED"]
        await pass_time(time, 29)
        assert world.nodes.get(NODE).state == "READY"
        await pass_time(time, 1)
        await preemption
        assert world.nodes.get(NODE).state == "PREEMPTED"

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("scheduling", "states"),
    [
        ({"preemptible": True}, ("READY", "TERMINATED")),
        ({"spot": True}, ("READY", "READY")),
        ({}, ("READY", "READY")),
    ],
)
def test_a_preemptible_node_ends_a_day_after_it_was_asked_for(
    tmp_path: Path, scheduling: dict[str, bool], states: tuple[str, str]
) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        await ready(world, time, schedulingConfig=scheduling)
        await pass_time(time, DAY - 61, step=DAY - 61)
        before = world.nodes.get(NODE).state
        await pass_time(time, 1)
        assert (before, world.nodes.get(NODE).state) == states
        assert (hosts.calls[-1] == ("stop", "one")) is ("TERMINATED" in states)

    play(tmp_path, story)


@pytest.mark.parametrize(("end", "state"), [("stop", "STOPPED"), ("delete", None), ("replace", "READY")])
def test_the_day_of_a_node_ends_no_other_and_none_that_is_down(
    tmp_path: Path, end: str, state: str | None
) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time, schedulingConfig={"preemptible": True})
        begun = world.nodes.stop(NODE) if end == "stop" else world.nodes.delete(NODE)
        await pass_time(time, 20)
        assert ended(world, begun) == (True, None)
        if end == "replace":
            await ready(world, time)
        await pass_time(time, DAY, step=DAY)
        assert (world.nodes.get(NODE).state if world.nodes.has(NODE) else None) == state

    play(tmp_path, story)


def test_a_node_that_is_gone_or_another_by_now_is_not_taken(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        old = await ready(world, time)
        world.nodes.delete(NODE)
        await pass_time(time, 20)
        await world._lifecycle.reclaim(old, "PREEMPTED")
        assert not world.nodes.has(NODE)
        await ready(world, time)
        await world._lifecycle.reclaim(old, "PREEMPTED")
        assert world.nodes.get(NODE).state == "READY"

    play(tmp_path, story)


def test_a_restart_starts_the_hosts_of_ready_nodes_alone(tmp_path: Path) -> None:
    async def story() -> None:
        time, hosts = ManualTime(), RecordedHosts()
        async with opened(tmp_path / "world.sqlite", time, hosts) as world:
            node = await ready(world, time, metadata={"a": "1"})
            world.nodes.simulate_maintenance(NODE, [])
            world.nodes.create(PARENT, "two", FIELDS)
            await pass_time(time, 60, step=30)
            world.nodes.stop(TWO)
            await settle()
        again = RecordedHosts()
        async with opened(tmp_path / "world.sqlite", time, again) as world:
            assert again.calls == [("start", "one")]
            assert again.metadata == {NODE: {"a": "1"}}
            assert again.notices == [(node.hosts()[0].hostname, "TERMINATE_ON_HOST_MAINTENANCE", False)]
            assert (world.nodes.get(NODE).health, world.nodes.get(TWO).state) == ("HEALTHY", "STOPPED")
        broken = RecordedHosts()
        broken.failure = OSError("no port")
        async with opened(tmp_path / "world.sqlite", time, broken) as world:
            assert (world.nodes.get(NODE).state, world.nodes.get(NODE).health) == ("READY", "TIMEOUT")

    asyncio.run(story())


def test_an_operation_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        time, hosts = ManualTime(), RecordedHosts()
        async with opened(tmp_path / "world.sqlite", time, hosts) as world:
            begun = world.nodes.create(PARENT, "one", FIELDS)
            await pass_time(time, 30)
        async with opened(tmp_path / "world.sqlite", time, hosts) as world:
            await pass_time(time, 29)
            assert ended(world, begun) == (False, None)
            await pass_time(time, 1)
            assert ended(world, begun) == (True, None)
            assert hosts.calls == [("start", "one")]

    asyncio.run(story())


def test_a_cancel_is_not_forgotten_over_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        time, hosts = ManualTime(), RecordedHosts()
        async with opened(tmp_path / "world.sqlite", time, hosts) as world:
            begun = world.nodes.create(PARENT, "one", FIELDS)
            world.cancel_operation(begun.name)  # and the simulator is killed before anything else runs
        async with opened(tmp_path / "world.sqlite", time, hosts) as world:
            await settle()
            assert ended(world, begun) == (True, Code.CANCELLED)

    asyncio.run(story())
