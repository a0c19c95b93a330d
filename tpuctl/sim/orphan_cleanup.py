"""`python -m tpuctl.sim.orphan_cleanup FOLDER`: end what a killed simulator left running on its hosts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from pathlib import Path

from tpuctl.sim.hosts.programs.processes import belonging, end_processes, snapshot, world_mark
from tpuctl.simulator_folder import SimulatorFolder

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


def main() -> None:
    """End them and print how many there were; none while a simulator serves the folder: they are its own."""
    folder = Path(sys.argv[1])
    with open(os.open(SimulatorFolder(folder).lock, os.O_RDWR | os.O_CREAT, 0o600), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ended = 0
        else:
            ended = asyncio.run(end(folder))
    sys.stdout.write(f"{ended}\n")


async def end(folder: Path) -> int:
    """End all processes of the hosts in `folder`; returns how many there were."""
    mark = world_mark(SimulatorFolder(folder).hosts)
    found = belonging(snapshot(), lambda one: one.startswith(mark), set())
    if found:
        await end_processes(lambda one: one.startswith(mark), set, GRACE)
    return len(found - {os.getpid()})


if __name__ == "__main__":
    main()
