"""Simulates a full disk: by a file that servers and Python programs check, by a kernel limit for others."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path

from tpuctl.sim.hosts.programs.processes import of_host

FULL = "disk_full"
"""Name of the file in the host's folder."""


def is_full(home: Path) -> bool:
    """Whether the disk of the host with this home is full."""
    return (home.parent / FULL).exists()


async def fill(folder: Path, mark: str, leaders: Callable[[], set[int]]) -> None:
    """Make every write on the host fail."""
    (folder / FULL).touch(mode=0o600)
    await asyncio.to_thread(_limit_all, mark, leaders(), 0)


async def free(folder: Path, mark: str, leaders: Callable[[], set[int]]) -> None:
    """Undo `fill`."""
    (folder / FULL).unlink(missing_ok=True)
    await asyncio.to_thread(_limit_all, mark, leaders(), resource.RLIM_INFINITY)


def limit(pid: int, size: int) -> None:
    """Limit the files of a running program to `size` bytes; Linux alone can do that from outside."""
    if not hasattr(resource, "prlimit"):
        return
    try:
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        soft = most if size == resource.RLIM_INFINITY else size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, most))
    except (ProcessLookupError, PermissionError):  # it has ended, or its id is another user's by now
        pass


def _limit_all(mark: str, leaders: set[int], size: int) -> None:
    """Look again until there is no new process: one can start another meanwhile."""
    limited: set[int] = set()
    while new := of_host(mark, leaders) - limited:
        for pid in new:
            limit(pid, size)
        limited |= new
