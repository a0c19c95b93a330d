"""Ends processes of a killed simulator's hosts: `python -m tpuctl.sim.orphan_cleanup FOLDER`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tpuctl.sim.hosts.programs.processes import belonging, end_processes, snapshot, world_mark
from tpuctl.sim.state.folder_lock import try_lock
from tpuctl.simulator_folder import SimulatorFolder

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


def main() -> None:
    """End them and print their number; 0 while a simulator serves the folder, as they belong to it."""
    folder = Path(sys.argv[1])
    with open(os.open(SimulatorFolder(folder).lock, os.O_RDWR | os.O_CREAT, 0o600), "wb") as lock:
        ended = asyncio.run(end_orphans(folder)) if try_lock(lock.fileno()) else 0
    sys.stdout.write(f"{ended}\n")


async def end_orphans(folder: Path) -> int:
    """End all processes of the hosts in `folder`; returns how many there were."""
    mark = world_mark(SimulatorFolder(folder).hosts)
    orphans = belonging(snapshot(), lambda other: other.startswith(mark), set())
    if orphans:
        await end_processes(lambda other: other.startswith(mark), set, GRACE)
    return len(orphans - {os.getpid()})


if __name__ == "__main__":
    main()
