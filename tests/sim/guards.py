"""The guard of a simulator, for parts of one."""

from __future__ import annotations

from pathlib import Path

from tpuctl.sim.access import Guard, Secret, system_owner


def guard_of(folder: Path) -> Guard:
    """Return what a simulator whose files are in `folder` has, on this system."""
    folder.mkdir(parents=True, exist_ok=True)
    return Guard(Secret(folder / "secret"), system_owner())
