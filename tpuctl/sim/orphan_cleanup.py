"""Ends processes of a killed simulator's hosts: `python -m tpuctl.sim.orphan_cleanup FOLDER`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tpuctl.errors import StateError
from tpuctl.sim.hosts.programs.processes import belonging, end_processes, snapshot, world_mark
from tpuctl.sim.state import lock_folder
from tpuctl.simulator_folder import SimulatorFolder

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
WATCH = 'read -r _; sleep "$1"; shift; exec "$@"'
"""A script of sh whose standard input ends with the simulator's process."""


class OrphanWatch:
    """Kills the hosts' processes `delay` seconds after this process was killed, as a power cut does.

    They live on where another simulator serves the folder by then or has done so, with a watch of its own.
    """

    def __init__(self, folder: Path, delay: int) -> None:
        pid = str(os.getpid())
        SimulatorFolder(folder).lock.write_text(pid)
        cleanup = [sys.executable, "-m", "tpuctl.sim.orphan_cleanup", str(folder), pid]
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "sh", str(delay), *cleanup],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the group of this process is not for the watch
        )

    def close(self) -> None:
        """End the watch, and nothing else."""
        with self._shell:
            self._shell.kill()


def main() -> None:
    """End them and print their number; 0 while a simulator serves the folder, as they belong to it.

    A watch adds the PID of its simulator: 0, too, if another one has served the folder since.
    """
    folder, *watched = sys.argv[1:]
    ended = asyncio.run(end_orphans(Path(folder), 0 if watched else GRACE)) if _claim(folder, watched) else 0
    sys.stdout.write(f"{ended}\n")


def _claim(folder: str, watched: list[str]) -> bool:
    """Return whether nobody serves the folder, nor can until this process has ended."""
    files = SimulatorFolder(Path(folder))
    if not files.path.exists():  # deleted with its processes running
        return True
    try:
        lock_folder(files.lock)  # the kernel may be about to unlock it for a process just killed
    except StateError:
        return False
    files.endpoints.unlink(missing_ok=True)  # of a locked folder they would be a running simulator's
    return not watched or files.lock.read_text() == watched[0]


async def end_orphans(folder: Path, grace: float) -> int:
    """End all processes of the hosts in `folder`; returns how many there were."""
    mark = world_mark(SimulatorFolder(folder).hosts)
    orphans = belonging(snapshot(), lambda other: other.startswith(mark), set())
    if orphans:
        await end_processes(lambda other: other.startswith(mark), set, grace)
    return len(orphans - {os.getpid()})


if __name__ == "__main__":
    main()
