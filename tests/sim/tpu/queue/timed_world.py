"""A world with queued resources whose clock only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import Profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import World

PARENT = "projects/rehearsal/locations/europe-west4-a"
NAME = f"{PARENT}/queuedResources/q"
NODE = f"{PARENT}/nodes/one"
TWO = f"{PARENT}/nodes/two"
DELAYS = {"create": 60, "delete": 20, "accept": 2, "queue": 3, "retry": 30, "suspend": 5, "dequeue": 5}
CAPACITY = ("europe-west4-a", "v3-8")
Story = Callable[[World, ManualTime], Awaitable[None]]


def sent(*identifiers: str, **fields: Any) -> dict[str, Any]:
    """A request for nodes of these ids."""
    node = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    specs = [{"parent": PARENT, "nodeId": name, "node": node} for name in identifiers or ("one",)]
    return {"tpu": {"nodeSpec": specs}, **fields}


@asynccontextmanager
async def opened(
    database: Path, time: ManualTime, hosts: RecordedHosts | None = None
) -> AsyncIterator[World]:
    """A world on a database file for as long as the block; its tasks then stop, as after a kill."""
    store = Database(database)
    pace = Profile(DELAYS, clock=time.clock, sleep=time.sleep)
    world = World(store, pace, hosts or RecordedHosts(), FaultRegistry())
    await world.resume()
    try:
        yield world
    finally:
        await world.close()
        store.close()


async def pass_time(time: ManualTime, seconds: int, step: int = 1) -> None:
    """Let seconds pass, and everything run that they bring."""
    for _ in range(0, seconds, step):
        await settle()
        await time.advance(step)
    await settle()


async def settle() -> None:
    """Let everything run that need not wait for the clock."""
    for _ in range(30):
        await asyncio.sleep(0)


def state(world: World, name: str = NAME) -> str:
    """The state of a queued resource."""
    return world.queued_resources.get(name).state
