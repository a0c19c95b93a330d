"""Rounds of use at random, with faults: afterwards nothing is left, and memory is as it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.gauge import ALLOWANCE, Reading, growth, read, slope
from tests.soak.workload import FAULTS, Workload
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import PublishedEndpoints
from tpuctl.errors import DeadlineError
from tpuctl.polling import Backoff, poll

HOUR = 3600
ROUNDS = 48
"""Enough for every fault to come: three rounds of four have one or more. They take about twenty seconds."""
SECONDS = os.environ.get("TPUCTL_SOAK_SECONDS")
"""How long at least, in place of the rounds alone or an hour."""
REPORT = os.environ.get("TPUCTL_SOAK_REPORT")
"""A file for what was measured."""
SEED = int(os.environ.get("TPUCTL_SOAK_SEED", "1"))
QUIET = 4
"""Every so many rounds nothing goes wrong, and everything has to work."""
FEWEST = 8
"""Rounds below which there is nothing to compare."""
POOL = 16
"""Threads that there may be anyway: a pool for files and names that fills as it is needed, and gRPC's own."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it is measured in /proc")


@pytest.fixture
def temporary(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The simulator's folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def folder(temporary: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of the simulator, which is gone after the test."""
    place = tmp_path / "state" / "sim"
    yield place
    simulator_process.reset(place)


def test_nothing_is_left_after_many_rounds(folder: Path, temporary: Path, tmp_path: Path) -> None:
    workload = soak(folder, temporary, tmp_path, rounds=ROUNDS, seconds=float(SECONDS or 0))
    assert {f"fault {kind}" for kind, _ in FAULTS} <= set(workload.done)


@pytest.mark.slow
@pytest.mark.timeout(2 * HOUR)
def test_nothing_is_left_after_an_hour(folder: Path, temporary: Path, tmp_path: Path) -> None:
    soak(folder, temporary, tmp_path, rounds=FEWEST, seconds=float(SECONDS or HOUR))


def soak(folder: Path, temporary: Path, own: Path, *, rounds: int, seconds: float) -> Workload:
    """Work for so long, and compare what the simulator holds at rest with what it held at first.

    One reading is taken after each round, when everything has been deleted again.
    """
    served = simulator_process.ensure(folder, "--idle", "0")
    workload = Workload(served, folder, own, SEED)
    readings: list[Reading] = []
    begun = time.monotonic()
    try:
        while len(readings) < rounds or time.monotonic() - begun < seconds:
            number = len(readings)
            workload.round(number, trouble=number % QUIET != 0)
            readings.append(read(served.pid, folder, temporary, time.monotonic() - begun))
    finally:
        workload.close()
        _report(readings, workload)
    _at_rest(served, folder, temporary, readings)
    assert growth(readings) < ALLOWANCE, f"memory grew by {growth(readings):.1f} MB"
    assert simulator_process.stop(folder)
    assert list(temporary.iterdir()) == []
    return workload


def _at_rest(served: PublishedEndpoints, folder: Path, temporary: Path, readings: list[Reading]) -> None:
    """Wait until it holds no more than early in the run; connections take a moment to end."""
    early = readings[: max(FEWEST, len(readings) // 2)]
    kinds = {kind for one in early for kind in one.descriptors}
    most = {kind: max(one.descriptors.get(kind, 0) for one in early) for kind in kinds}
    threads = max(POOL, *(one.threads for one in early))

    def left() -> dict[str, object]:
        now = read(served.pid, folder, temporary, 0)
        more = {kind: count for kind, count in now.descriptors.items() if count > most.get(kind, 0)}
        new = [path for path in now.files if path not in readings[0].files]
        found = {"processes": now.processes, "files": new, "descriptors": more}
        return {**found, "threads": now.threads if now.threads > threads else 0}

    try:
        poll(
            lambda: None if any(left().values()) else True,
            awaiting="it to come to rest",
            timeout=30,
            backoff=Backoff(0.1),
        )
    except DeadlineError:
        raise AssertionError(f"left: {left()}; early in the run: {most}, {threads} threads") from None


def _report(readings: list[Reading], workload: Workload) -> None:
    """Write down what was measured, for whoever looks at a long run."""
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
        "descriptors": [sum(one.descriptors.values()) for one in readings],
        "threads": [one.threads for one in readings],
        "memory": [round(one.memory, 1) for one in readings],
        "done": dict(workload.done),
        "refused": dict(workload.refused),
    }
    Path(REPORT).write_text(json.dumps(content, indent=1))
