"""Operations that have ended are kept for a while, not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sim.tpu.recorded_hosts import RecordedHosts
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import ApiError, World
from tpuctl.sim.world import state as module

PARENT = "projects/rehearsal/locations/europe-west4-a"
SPEC = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}


def test_the_oldest_are_removed_and_those_that_run_stay(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 3)

    async def end_operations(database: Database) -> list[str]:
        hosts = RecordedHosts()
        world = World(database, profile("instant"), hosts, FaultRegistry())
        await world.resume()
        names = []
        for number in range(5):
            names.append(world.nodes.create(PARENT, f"n{number}", SPEC).name)
            await world.operations.wait(names[-1], 10)
        hosts.hold = asyncio.Event()
        running = world.nodes.create(PARENT, "slow", SPEC).name
        assert {operation.name for operation in world.operations.all(PARENT)} == {*names[2:], running}
        with pytest.raises(ApiError, match="was not found"):
            world.operations.get(names[0])
        hosts.hold.set()
        await world.operations.wait(running, 10)
        await world.close()
        return [*names, running]

    before = Database(database)
    names = asyncio.run(end_operations(before))
    before.close()
    after = Database(database)
    operations = module.Operations(after, profile("instant"))
    assert {operation.name for operation in operations.all(PARENT)} == set(names[-3:])
    operations.delete(names[-1])
    assert operations.find(names[-1]) is None
    after.close()
