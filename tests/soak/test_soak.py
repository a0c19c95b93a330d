"""Random rounds of work with faults: afterwards no resources are leaked, and memory has not grown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.soak.gauge import ALLOWANCE, Reading, growth, read, slope
from tests.soak.workload import FAULTS, Workload
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import PublishedEndpoints
from tpuctl.errors import DeadlineError
from tpuctl.polling import Backoff, poll

MINUTES = 120
"""Seconds of a long run in make test-all; an hour by TPUCTL_SOAK_SECONDS=3600."""
ROUNDS = 48
"""Enough for every fault: three rounds of four have one or more. They take about twenty seconds."""
SECONDS = os.environ.get("TPUCTL_SOAK_SECONDS")
"""Least duration, in place of the default (the rounds alone, or MINUTES)."""
REPORT = os.environ.get("TPUCTL_SOAK_REPORT")
"""A file for the measurements."""
SEED = int(os.environ.get("TPUCTL_SOAK_SEED", "1"))
QUIET = 4
"""Every such round has no faults, and everything must succeed."""
FEWEST = 8
"""Least number of rounds for a comparison."""
POOL = 16
"""Threads that are always allowed: a pool for files and name lookups that fills on demand, and gRPC's own."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")]


@pytest.fixture
def temporary(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The simulator's folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def folder(temporary: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of the simulator, which is deleted after the test."""
    folder = tmp_path / "state" / "sim"
    yield folder
    simulator_process.reset(folder)


def test_nothing_is_leaked_after_many_rounds(folder: Path, temporary: Path, tmp_path: Path) -> None:
    workload = soak(folder, temporary, tmp_path, rounds=ROUNDS, seconds=float(SECONDS or 0))
    assert {f"fault {kind}" for kind, _ in FAULTS} <= set(workload.succeeded)


@pytest.mark.timeout(2 * float(SECONDS or 0) + 1800)
def test_nothing_is_leaked_after_minutes(folder: Path, temporary: Path, tmp_path: Path) -> None:
    soak(folder, temporary, tmp_path, rounds=FEWEST, seconds=float(SECONDS or MINUTES))


def soak(folder: Path, temporary: Path, client_folder: Path, *, rounds: int, seconds: float) -> Workload:
    """Run the workload, and compare the resources of the idle simulator with those early in the run.

    A reading is taken after each round, when everything is deleted again.
    """
    served = simulator_process.ensure(folder, "--idle", "0")
    workload = Workload(served, folder, client_folder, SEED)
    readings: list[Reading] = []
    begun = time.monotonic()
    try:
        while len(readings) < rounds or time.monotonic() - begun < seconds:
            number = len(readings)
            workload.round(number, faulty=number % QUIET != 0)
            readings.append(read(served.pid, folder, temporary, time.monotonic() - begun))
    finally:
        workload.close()
        _report(readings, workload)
    _assert_idle(served, folder, temporary, readings)
    assert growth(readings) < ALLOWANCE, f"memory grew by {growth(readings):.1f} MB"
    assert simulator_process.stop(folder)
    assert list(temporary.iterdir()) == []
    return workload


def _assert_idle(served: PublishedEndpoints, folder: Path, temporary: Path, readings: list[Reading]) -> None:
    """Wait until it has no more resources than early in the run; connections take a moment to end."""
    early = readings[: max(FEWEST, len(readings) // 2)]
    kinds = {kind for reading in early for kind in reading.descriptors}
    most = {kind: max(reading.descriptors.get(kind, 0) for reading in early) for kind in kinds}
    threads = max(POOL, *(reading.threads for reading in early))

    def leaked() -> dict[str, object]:
        now = read(served.pid, folder, temporary, 0)
        more = {kind: count for kind, count in now.descriptors.items() if count > most.get(kind, 0)}
        new = [path for path in now.files if path not in readings[0].files]
        excess = {"processes": now.processes, "files": new, "descriptors": more}
        return {**excess, "threads": now.threads if now.threads > threads else 0}

    try:
        poll(
            lambda: None if any(leaked().values()) else True,
            awaiting="an idle simulator",
            timeout=100,
            backoff=Backoff(0.1),
        )
    except DeadlineError:
        connections = psutil.Process(served.pid).net_connections("all")
        lines = [f"{item.laddr} {item.raddr} {item.status}" for item in connections]
        raise AssertionError(
            "\n".join([f"leaked: {leaked()}; early in the run: {most}, {threads} threads", *lines])
        ) from None


def _report(readings: list[Reading], workload: Workload) -> None:
    """Write the measurements to REPORT, to analyse a long run."""
    if not REPORT or len(readings) < FEWEST:
        return
    content = {
        "rounds": len(readings),
        "seconds": round(readings[-1].seconds),
        "memory first, settled, last (MB)": [
            round(readings[place].memory, 1) for place in (0, len(readings) // 4, -1)
        ],
        "growth (MB)": round(growth(readings), 2),
        "slope (MB an hour)": round(slope(readings), 2),
        "descriptors": [sum(reading.descriptors.values()) for reading in readings],
        "threads": [reading.threads for reading in readings],
        "memory": [round(reading.memory, 1) for reading in readings],
        "succeeded": dict(workload.succeeded),
        "failed": dict(workload.failed),
    }
    Path(REPORT).write_text(json.dumps(content, indent=1))
