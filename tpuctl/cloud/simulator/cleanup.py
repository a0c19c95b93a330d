"""Ends the programs of a killed simulator, and deletes a simulator's state."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tpuctl.cloud.simulator.locks import exclusive
from tpuctl.cloud.simulator.process import stop_started
from tpuctl.errors import HostError
from tpuctl.simulator_folder import SimulatorFolder


def reset(folder: Path) -> None:
    """Stop the simulator of `folder`, end the programs of its hosts, and delete all of its state.

    Raises HostError when programs cannot be ended or files cannot be deleted.
    """
    if not folder.is_dir():
        return
    files = SimulatorFolder(folder)
    with exclusive(files.starting_lock):
        stop_started(folder)
        end_orphans(folder)
        with exclusive(files.lock):
            _delete_all_but(folder, {files.starting_lock, files.lock})


def end_orphans(folder: Path) -> int:
    """End the programs that a killed simulator left running on its hosts, and return their number.

    0 while a simulator runs: the programs are its own. Raises HostError.
    """
    if not SimulatorFolder(folder).hosts.is_dir():
        return 0
    command = [sys.executable, "-m", "tpuctl.sim.orphan_cleanup", str(folder)]
    cleanup = subprocess.run(command, capture_output=True, text=True, check=False)
    if cleanup.returncode:
        reason = (cleanup.stderr.strip().splitlines() or ["no message"])[-1].rstrip(".")
        raise HostError(
            f"The programs that a killed simulator left running could not be ended: {reason}.",
            hint="The next start ends them, too: tpuctl sim start",
        )
    return int(cleanup.stdout)


def _delete_all_but(folder: Path, locks: set[Path]) -> None:
    """The locks stay: another process may be waiting for one."""
    try:
        for path in folder.iterdir():
            if path in locks:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise HostError(
            f"{error.filename} cannot be deleted: {error.strerror}.", hint=f"Delete it by hand: {folder}"
        ) from error
