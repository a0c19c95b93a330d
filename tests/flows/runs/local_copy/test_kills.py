"""A pull that is killed at any moment: no half of a checkpoint counts, and the next pull completes it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.flows.runs.records import write_chunk, write_run
from tests.forks import commands
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.staged_folder import STAGING
from tpuctl.polling import poll

FILES = 12
FIRST_STATE = b'model_checkpoint_path: "ckpt-1"\n'


@pytest.fixture
def killed_run(bucket: Bucket) -> StoredRun:
    """A run with a checkpoint of several files, and others."""
    stored = write_run(bucket)
    write_chunk(stored.last_attempt(), 0, 1, "one\n")
    names = [f"outputs/{number}" for number in range(FILES)]
    names += [f"checkpoints/ckpt-1.data-{number:05}-of-00005" for number in range(5)]
    for name in (*names, "checkpoints/ckpt-1.index"):
        bucket.upload(f"runs/r1/{name}", [name.encode() * 50_000], "application/octet-stream")
    bucket.upload("runs/r1/checkpoints/checkpoint", [FIRST_STATE], "text/plain")
    return stored


def downloads(simulator: RunningSimulator) -> int:
    return len(simulator.events.find(kind="request", service="storage", what="*objects.get"))


def kill_after(simulator: RunningSimulator, folder: Path, requests: int) -> None:
    """Start a pull and kill it once it has sent so many requests for objects; it may have ended by then."""
    before = downloads(simulator)
    command = ("pull", "r1", "--to", str(folder))
    with commands.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def has_sent() -> bool | None:
            return process.poll() is not None or downloads(simulator) - before >= requests or None

        poll(has_sent, awaiting="requests of the pull", timeout=300)
        process.send_signal(signal.SIGKILL)


def check(simulator: RunningSimulator, killed_run: StoredRun, folder: Path, moments: list[int]) -> None:
    """Kill at each of the moments, then complete; what the state file names is whole all the time."""
    for moment in moments:
        kill_after(simulator, folder, moment)
        checkpoints = folder / "checkpoints"
        if (checkpoints / "checkpoint").exists():
            assert len(os.listdir(checkpoints)) == 7
    pull(killed_run, folder, lambda text: None)
    stored = [item.name for item in killed_run.bucket.objects("runs/r1/")]
    for name in stored:
        assert (folder / name.removeprefix("runs/r1/")).read_bytes() == killed_run.bucket.read(name)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == len(stored) + 1, "the joined log"
    assert not (folder / STAGING).exists()


def test_the_next_completes_it(simulator: RunningSimulator, killed_run: StoredRun, tmp_path: Path) -> None:
    check(simulator, killed_run, tmp_path / "r1", [3, 8, 16])


@pytest.mark.slow
def test_the_next_completes_it_after_fifty_kills(
    simulator: RunningSimulator, killed_run: StoredRun, tmp_path: Path
) -> None:
    moments = random.Random(14).choices(range(1, 30), k=50)
    for number in range(10):
        check(simulator, killed_run, tmp_path / str(number), moments[5 * number : 5 * number + 5])
