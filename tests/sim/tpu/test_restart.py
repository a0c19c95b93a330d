"""The world after a restart, and after a kill -9: nothing is lost, and running operations continue."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import Profile, profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import Node, World

PARENT = "projects/rehearsal/locations/europe-west4-a"
SPEC = {"acceleratorType": "v3-32", "runtimeVersion": "tpu-ubuntu2204-base", "metadata": {"a": "1"}}


class Opened:
    """A world on a database file, for as long as the block."""

    def __init__(self, database: Path, pace: Profile | None = None) -> None:
        self.hosts = RecordedHosts()
        self.faults = FaultRegistry()
        self._database = Database(database)
        self.world = World(self._database, pace or profile("instant"), self.hosts, self.faults)

    async def __aenter__(self) -> Opened:
        await self.world.resume()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.world.close()
        self.close()

    def close(self) -> None:
        self._database.close()

    async def first_call(self) -> None:
        while not self.hosts.calls:
            await asyncio.sleep(0)

    async def create(self, node_id: str = "one") -> str:
        return self.world.nodes.create(PARENT, node_id, SPEC).name

    async def end_of(self, operation: str) -> Node | None:
        ended = await self.world.operations.wait(operation, 10)
        assert ended.done
        assert ended.error is None
        return ended.result


def test_hosts_of_ready_nodes_start_again_with_their_metadata(database: Path) -> None:
    async def story() -> None:
        async with Opened(database) as before:
            node = await before.end_of(await before.create())
        async with Opened(database) as after:
            (restarted,) = after.world.nodes.all()
            assert (restarted.uid, restarted.state, restarted.spec) == (node.uid, "READY", node.spec)
            assert list(after.hosts.up) == list(node.addresses)
            assert after.hosts.metadata == {node.name: {"a": "1"}}

    asyncio.run(story())


def test_a_create_continues_after_a_restart_and_takes_its_time_once(database: Path) -> None:
    async def story() -> None:
        time = ManualTime()
        pace = Profile({"create": 60}, clock=time.clock, sleep=time.sleep)
        async with Opened(database, pace) as before:
            name = await before.create()
            await time.advance(40)
        async with Opened(database, pace) as after:
            assert after.world.nodes.all()[0].state == "CREATING"
            assert after.hosts.calls == []
            await time.advance(20)
            node = await after.end_of(name)
            assert (node.state, after.hosts.calls) == ("READY", [("start", "one")])

    asyncio.run(story())


def test_a_create_killed_while_its_hosts_started_starts_them_again(database: Path) -> None:
    async def story() -> None:
        killed = Opened(database)
        killed.hosts.hold = asyncio.Event()  # and it is never set
        name = await killed.create()
        await killed.first_call()
        async with Opened(database) as after:
            assert (await after.end_of(name)).state == "READY"
        killed.close()

    asyncio.run(story())


def test_a_delete_waits_for_the_start_of_the_hosts_before_it_stops_them(database: Path) -> None:
    async def story() -> None:
        async with Opened(database) as opened:
            opened.hosts.hold = asyncio.Event()
            creating = await opened.create()
            await opened.first_call()
            (node,) = opened.world.nodes.all()
            deleting = opened.world.nodes.delete(node.name)
            assert (await opened.world.operations.wait(creating, 10)).error.code == 1
            assert opened.hosts.calls == [("start", "one")]
            opened.hosts.hold.set()
            await opened.end_of(deleting.name)
            assert opened.hosts.calls == [("start", "one"), ("remove", "one")]
            assert opened.hosts.finished == 2
            assert opened.world.idle()

    asyncio.run(story())


def test_a_delete_lets_a_preemption_end_first(database: Path) -> None:
    async def story() -> None:
        async with Opened(database) as opened:
            node = await opened.end_of(await opened.create())
            opened.hosts.hold = asyncio.Event()
            preempting = asyncio.ensure_future(opened.world.preempt(node.name))
            while len(opened.hosts.calls) < 2:
                await asyncio.sleep(0)
            deleting = opened.world.nodes.delete(node.name)
            opened.hosts.hold.set()
            await opened.end_of(deleting.name)
            await preempting
            assert opened.hosts.calls == [("start", "one"), ("stop", "one"), ("remove", "one")]
            assert opened.hosts.finished == 3

    asyncio.run(story())


def test_an_operation_that_was_to_fail_still_fails(database: Path) -> None:
    async def story() -> None:
        time = ManualTime()
        pace = Profile({"failure": 10}, clock=time.clock, sleep=time.sleep)
        async with Opened(database, pace) as before:
            before.faults.add("stockout", zone="europe-west4-a")
            name = await before.create()
        async with Opened(database, pace) as after:
            await time.advance(10)
            ended = await after.world.operations.wait(name, 10)
            assert ended.error.code == 8
            assert after.world.idle()

    asyncio.run(story())


def test_addresses_are_not_given_out_twice_over_a_restart(database: Path) -> None:
    async def story() -> None:
        async with Opened(database) as before:
            first = await before.end_of(await before.create("one"))
            await before.end_of(before.world.nodes.delete(first.name).name)
        async with Opened(database) as after:
            second = await after.end_of(await after.create("two"))
            assert not set(first.addresses) & set(second.addresses)

    asyncio.run(story())


def test_hosts_that_do_not_start_leave_the_node_unhealthy(database: Path) -> None:
    async def story() -> None:
        async with Opened(database) as before:
            await before.end_of(await before.create())
        broken = Opened(database)
        broken.hosts.failure = OSError("no free port")
        async with broken as after:
            (node,) = after.world.nodes.all()
            assert (node.state, node.health) == ("READY", "TIMEOUT")
        async with Opened(database) as fixed:
            assert fixed.world.nodes.all()[0].health == "HEALTHY"

    asyncio.run(story())


class FullDisk(Database):
    """A database on which one more put works, and no other."""

    puts_left = 1

    def put(self, kind: str, name: str, body: bytes) -> None:
        self.puts_left -= 1
        if self.puts_left < 0:
            raise sqlite3.OperationalError("database or disk is full")
        super().put(kind, name, body)


def test_a_node_and_its_operation_are_on_disk_together_or_not_at_all(database: Path) -> None:
    full = FullDisk(database)
    world = World(full, profile("instant"), RecordedHosts(), FaultRegistry())
    with pytest.raises(sqlite3.OperationalError):
        world.nodes.create(PARENT, "one", SPEC)
    full.close()
    again = Opened(database)
    assert again.world.idle()
    again.close()


def test_every_accepted_operation_outlives_a_kill(database: Path) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.sim.tpu.world_to_kill", str(database)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as busy:
        accepted = [line.strip() for line in itertools.islice(busy.stdout, 50)]
        busy.send_signal(signal.SIGKILL)
        accepted += [line.strip() for line in busy.stdout if line.endswith("\n")]
    assert len(accepted) >= 50

    async def story() -> None:
        opened = Opened(database)
        for node in opened.world.nodes.all():  # a node in transition has its operation, any other has none
            running = opened.world.operations.running_on(node.name)
            assert (running is None) == (node.state == "READY")
        async with opened as after:
            for name in accepted:
                await after.end_of(name)
            while any(queued.state != "ACTIVE" for queued in after.world.queued_resources.all()):
                await asyncio.sleep(0.005)
            for queued in after.world.queued_resources.all():
                assert all(
                    after.world.nodes.get(node).queued_resource == queued.name for node in queued.nodes
                )
            assert {node.state for node in after.world.nodes.all()} == {"READY"}
            addresses = [address for node in after.world.nodes.all() for address in node.addresses]
            assert len(addresses) == len(set(addresses))

    asyncio.run(story())
