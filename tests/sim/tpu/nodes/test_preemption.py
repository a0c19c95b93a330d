"""Preempted nodes, with a notice and without, and preemptible nodes at the end of their life."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.sim.tpu.api import POLLING, Api
from tests.sim.tpu.recorded_hosts import ManualTime
from tpuctl.sim.settings import Profile

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
State = tpu_v2.Node.State
HOURS = 3600.0


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def api(database: Path, time: ManualTime) -> Iterator[Api]:
    served = Api(database, Profile({}, clock=time.clock, sleep=time.sleep))
    yield served
    served.close()


def create(client: tpu_v2.TpuClient, **scheduling: bool) -> tpu_v2.Node:
    node = tpu_v2.Node(
        accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base", scheduling_config=scheduling
    )
    return client.create_node(parent=PARENT, node_id="one", node=node).result(polling=POLLING)


def start_to_preempt(api: Api, notice: float) -> Future[None]:
    """Begin a preemption and return when its notice has been given."""
    begun = api.start(api.world.preempt(NODE, notice))
    api.until(lambda: bool(api.hosts.notices))
    return begun


def test_a_node_is_ready_between_the_notice_and_its_end(
    grpc_client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    create(grpc_client, spot=True)
    preempting = start_to_preempt(api, notice=30)
    assert [(event, preempted) for _, event, preempted in api.hosts.notices] == [("NONE", True)]
    assert grpc_client.get_node(name=NODE).state == State.READY
    assert api.hosts.up
    api.run(time.advance(30))
    preempting.result(60)
    assert grpc_client.get_node(name=NODE).state == State.PREEMPTED
    assert not api.hosts.up
    noted = [(event.kind, event.what) for event in api.world.events if event.what == "PREEMPTED"]
    assert noted == [("notice", "PREEMPTED"), ("transition", "PREEMPTED")]


def test_hosts_end_before_the_node_is_preempted_and_nothing_else_is_allowed_meanwhile(
    grpc_client: tpu_v2.TpuClient, api: Api
) -> None:
    create(grpc_client, spot=True)
    api.run(_hold(api))
    preempting = start_to_preempt(api, notice=0)
    api.until(lambda: ("stop", "one") in api.hosts.calls)
    assert grpc_client.get_node(name=NODE).state == State.READY
    with pytest.raises(exceptions.InvalidArgument, match="while in state PREEMPTED"):
        grpc_client.stop_node(request={"name": NODE})
    api.run(_release(api))
    preempting.result(60)
    assert grpc_client.get_node(name=NODE).state == State.PREEMPTED


def test_a_node_deleted_during_its_notice_is_not_preempted(
    grpc_client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    create(grpc_client, spot=True)
    preempting = start_to_preempt(api, notice=30)
    grpc_client.delete_node(name=NODE).result(polling=POLLING)
    again = create(grpc_client)
    api.run(time.advance(30))
    preempting.result(60)
    assert grpc_client.get_node(name=NODE) == again


def test_a_preemptible_node_ends_after_a_day_and_a_spot_node_does_not(
    grpc_client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    create(grpc_client, preemptible=True)
    api.run(time.advance(24 * HOURS - 1))
    assert grpc_client.get_node(name=NODE).state == State.READY
    api.run(time.advance(1))
    api.until(lambda: api.world.nodes.get(NODE).state == "TERMINATED")
    assert not api.hosts.up
    with pytest.raises(exceptions.InvalidArgument, match="while in state TERMINATED"):
        grpc_client.stop_node(request={"name": NODE})
    grpc_client.delete_node(name=NODE).result(polling=POLLING)
    create(grpc_client, spot=True)
    api.run(time.advance(48 * HOURS))
    assert grpc_client.get_node(name=NODE).state == State.READY


def test_the_day_of_a_preemptible_node_continues_over_a_restart(database: Path, time: ManualTime) -> None:
    from tests.sim.tpu.test_restart import SPEC, Opened

    pace = Profile({}, clock=time.clock, sleep=time.sleep)

    async def story() -> None:
        async with Opened(database, pace) as before:
            spec = {**SPEC, "schedulingConfig": {"preemptible": True}}
            await before.end_of(before.world.nodes.create(PARENT, "one", spec).name)
            await time.advance(20 * HOURS)
        async with Opened(database, pace) as after:
            await asyncio.sleep(0)
            await time.advance(4 * HOURS)
            while after.world.nodes.all()[0].state != "TERMINATED":
                await asyncio.sleep(0)

    asyncio.run(story())


async def _hold(api: Api) -> None:
    api.hosts.hold = asyncio.Event()


async def _release(api: Api) -> None:
    api.hosts.hold.set()
