"""A process of its own with a busy world in it, to be killed: prints each operation that was accepted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.sim.tpu.recorded_hosts import RecordedHosts
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import World

PARENT = "projects/rehearsal/locations/europe-west4-a"
SPEC = {"acceleratorType": "v3-32", "runtimeVersion": "tpu-ubuntu2204-base"}
ROUNDS = 100
"""So few that each operation is still known afterwards: of those that have ended the oldest go."""
SLICES = {"parent": PARENT, "node": SPEC, "multisliceParams": {"nodeCount": 2}}


async def main(database: Path) -> None:
    world = World(Database(database), profile("instant"), RecordedHosts(), FaultRegistry())
    for number in range(ROUNDS):
        requested = {"tpu": {"nodeSpec": [SLICES]}}
        print(world.queued_resources.create(PARENT, f"q{number}", requested).name, flush=True)
        operation = world.nodes.create(PARENT, f"n{number}", SPEC)
        print(operation.name, flush=True)
        if number % 3:
            await world.operations.wait(operation.name, None)
        if number % 3 == 1:
            print(world.nodes.delete(operation.target).name, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1])))
