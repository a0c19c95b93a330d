"""What a process holds: memory, descriptors, threads, processes of its hosts, files; read from /proc."""

from __future__ import annotations

import os
import re
import sqlite3
import statistics
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tpuctl.sim.hosts.programs.processes import snapshot, world_mark

BOUNDED = ("events.jsonl", "simulator.log", "world.db", "metadata.db")
"""Files whose number is fixed and whose size has a bound of its own, with what SQLite keeps beside them."""
ALLOWANCE = 8.0
"""MB by which memory may differ between two stretches of the run: allocators, caches that fill."""


@dataclass(frozen=True)
class Reading:
    """One look at a simulator that rests: no node, no object, no fault."""

    seconds: float
    memory: float
    """Resident, MB."""
    descriptors: dict[str, int]
    """Kind (socket, pipe, anon_inode, or a file's name in the simulator's folder) -> how many."""
    threads: int
    processes: list[int] = field(default_factory=list)
    """Of its hosts."""
    files: list[str] = field(default_factory=list)
    """In its folder and its temporary one. Left out: the bounded ones, and the bytes of uploads that were cut
    off and can be resumed for a week, as in Cloud Storage."""


def read(pid: int, folder: Path, temporary: Path, seconds: float) -> Reading:
    """Take a reading of the simulator with this process id."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    mark = world_mark(folder / "hosts")
    return Reading(
        seconds=seconds,
        memory=int(_field(status, "VmRSS")) / 1024,
        descriptors=dict(_descriptors(pid)),
        threads=int(_field(status, "Threads")),
        processes=[seen.pid for seen in snapshot() if seen.mark.startswith(mark)],
        files=sorted({*_files(folder), *_files(temporary)} - _awaited(folder)),
    )


def growth(readings: list[Reading]) -> float:
    """Return by how many MB memory grew from the second quarter of the run to the last: medians of each.

    The first quarter is for warming up: imports, pools of threads, caches.
    """
    quarter = len(readings) // 4
    early, late = readings[quarter : 2 * quarter], readings[-quarter:]
    return statistics.median(one.memory for one in late) - statistics.median(one.memory for one in early)


def slope(readings: list[Reading]) -> float:
    """Return the trend of memory after the first quarter, in MB an hour (least squares)."""
    settled = readings[len(readings) // 4 :]
    line = statistics.linear_regression([one.seconds for one in settled], [one.memory for one in settled])
    return line.slope * 3600


def _descriptors(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    folder = Path("/proc") / str(pid) / "fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except FileNotFoundError:
            continue
        found[re.sub(r":\[.*", "", target).rpartition("/")[2]] += 1
    return found


def _files(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(BOUNDED)
    ]


def _awaited(folder: Path) -> set[str]:
    """The files of uploads that can be resumed."""
    with closing(sqlite3.connect(f"file:{folder}/gcs/metadata.db?mode=ro", uri=True)) as database:
        blobs = [blob for (blob,) in database.execute("select blob from sessions where blob != ''")]
    return {f"gcs/blobs/{blob[:2]}/{blob}" for blob in blobs}


def _field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert found
    return found[1]
