"""Reads from /proc the resources of a simulator: memory, descriptors, threads, host processes, files."""

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
"""Files of fixed number and bounded size, with the files that SQLite keeps beside them."""
ALLOWANCE = 8.0
"""MB that memory may grow between two quarters of the run: allocators, caches that fill."""


@dataclass(frozen=True)
class Reading:
    """The resources of an idle simulator, without nodes, objects and faults."""

    seconds: float
    memory: float
    """Resident, MB."""
    descriptors: dict[str, int]
    """Kind (socket, pipe, anon_inode, or the name of a file in the simulator's folder) -> count."""
    threads: int
    processes: list[int] = field(default_factory=list)
    """Processes of its hosts."""
    files: list[str] = field(default_factory=list)
    """Files in its folder and its temporary folder, without the bounded ones and interrupted uploads. Those
    can be resumed for a week, as in Cloud Storage."""


def read(pid: int, folder: Path, temporary: Path, seconds: float) -> Reading:
    """Take a reading of the simulator with this process id."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    mark = world_mark(folder / "hosts")
    return Reading(
        seconds=seconds,
        memory=int(_field(status, "VmRSS")) / 1024,
        descriptors=dict(_descriptors(pid)),
        threads=int(_field(status, "Threads")),
        processes=[process.pid for process in snapshot() if process.mark.startswith(mark)],
        files=sorted({*_files(folder), *_files(temporary)} - _resumable_uploads(folder)),
    )


def growth(readings: list[Reading]) -> float:
    """Return the growth of memory in MB from the second quarter of the run to the last, by their medians.

    The first quarter is warm-up: imports, thread pools, caches.
    """
    quarter = len(readings) // 4
    early, late = readings[quarter : 2 * quarter], readings[-quarter:]
    return statistics.median(reading.memory for reading in late) - statistics.median(
        reading.memory for reading in early
    )


def slope(readings: list[Reading]) -> float:
    """Return the trend of memory after the first quarter, in MB an hour (least squares)."""
    settled = readings[len(readings) // 4 :]
    seconds = [reading.seconds for reading in settled]
    line = statistics.linear_regression(seconds, [reading.memory for reading in settled])
    return line.slope * 3600


def _descriptors(pid: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    folder = Path("/proc") / str(pid) / "fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except FileNotFoundError:
            continue
        counts[re.sub(r":\[.*", "", target).rpartition("/")[2]] += 1
    return counts


def _files(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(BOUNDED)
    ]


def _resumable_uploads(folder: Path) -> set[str]:
    """Return the files of uploads that can be resumed."""
    with closing(sqlite3.connect(f"file:{folder}/gcs/metadata.db?mode=ro", uri=True)) as database:
        blobs = [blob for (blob,) in database.execute("select blob from sessions where blob != ''")]
    return {f"gcs/blobs/{blob[:2]}/{blob}" for blob in blobs}


def _field(status: str, name: str) -> str:
    match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert match
    return match[1]
