"""Tests a laptop and hosts of two versions: a run that an earlier one started, and one that it looks at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.golden.bucket.restored import COMMIT, PROGRAM, SPEC, Recording, bucket_of
from tests.golden.bucket.shown_time import ShownTime
from tests.paths import ROOT
from tests.running_simulator import CommandResult
from tpuctl.polling import Backoff, poll
from tpuctl.testing import Simulator

pytestmark = pytest.mark.daily

Tpuctl = Callable[..., CommandResult]
Earlier = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPT = """\
# /// script
# dependencies = []
# [tool.tpuctl]
# framework = "jax"
# ///
import os, pathlib, time
print("step 1", flush=True)
while not pathlib.Path(os.environ["GO"]).exists(): time.sleep(0.05)
print("step 2", flush=True)
"""
LAUNCH = (
    'mkdir -p "$1" && mv worker.zip spec.json "$1" && cd "$1" && exec python3 worker.zip launch spec.json'
)
"""For sh: what a laptop of the earlier version had the host do."""


@pytest.fixture
def sim(home: Path, tmp_path: Path) -> Iterator[Simulator]:
    """A fresh simulator, which the commands of this test use."""
    with Simulator(tmp_path / "state" / "sim") as sim:
        yield sim


def until_line(tpuctl: Tpuctl, run: str) -> None:
    poll(lambda: tpuctl("logs", run).out or None, awaiting="the first line", timeout=60, backoff=Backoff(0.1))


def state(tpuctl: Tpuctl, run: str) -> str:
    (listed,) = [each for each in tpuctl("runs", "--json").json["runs"] if each["run"] == run]
    return str(listed["state"])


def test_a_run_that_an_earlier_version_started_is_followed_and_stopped(
    sim: Simulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = ShownTime(monkeypatch)
    assert tpuctl("up", "v3-8", "--name", "timed", "--framework", "jax", "--yes").code == 0
    (node,) = sim.world.nodes()
    Recording().upload_submission("running", bucket_of(sim), str(node.uid))
    spec = json.loads(SPEC.read_text())
    spec["tpu_uid"], spec["environment"]["GO"] = str(node.uid), str(Path("go").absolute())
    Path("spec.json").write_text(json.dumps(spec))
    assert tpuctl("cp", str(PROGRAM), "spec.json", "timed:.").code == 0
    launched = tpuctl("exec", "timed", "--", "sh", "-c", LAUNCH, "sh", ".tpuctl/runs/running/1")
    assert launched.code == 0, launched.err
    until_line(tpuctl, "running")
    assert state(tpuctl, "running") == "running"
    time.pass_by(60)  # for so long it has said nothing, and its host is asked
    assert state(tpuctl, "running") == "running"
    cancelled = tpuctl("cancel", "running", "--yes")
    assert cancelled.code == 0, cancelled.err
    assert state(tpuctl, "running") == "stopped"
    followed = tpuctl("logs", "running", "-f")
    assert (followed.code, followed.out) == (4, "step 1\n")
    assert tpuctl("pull", "running", "--to", "pulled").code == 0


@pytest.fixture
def earlier(home: Path, tmp_path: Path) -> Earlier:
    """The command line of the earlier version."""
    git = ["git", "-C", str(ROOT), "archive", COMMIT, "tpuctl"]
    archive = subprocess.run(git, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone does not have the commit {COMMIT}: git fetch --unshallow")
    folder = tmp_path / "earlier"
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 brought it
        files.extractall(folder)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tpuctl", *words]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def test_a_laptop_of_an_earlier_version_follows_and_stops_a_run_of_this_one(
    sim: Simulator, tpuctl: Tpuctl, earlier: Earlier
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(SCRIPT)
    go = Path("go").absolute()
    assert tpuctl("submit", "job.py", "--name", "r1", "--env", f"GO={go}").code == 0
    until_line(tpuctl, "r1")
    (listed,) = json.loads(earlier("runs", "--json").stdout)["runs"]
    assert (listed["run"], listed["state"], listed["node"]) == ("r1", "running", "n1")
    go.touch()
    followed = earlier("logs", "r1", "-f")
    assert (followed.returncode, followed.stdout) == (0, "step 1\nstep 2\n"), followed.stderr
    go.unlink()
    assert tpuctl("submit", "job.py", "--name", "r2", "--env", f"GO={go}").code == 0
    until_line(tpuctl, "r2")
    cancelled = earlier("cancel", "r2", "--yes", "--json")
    assert (cancelled.returncode, json.loads(cancelled.stdout)["outcome"]) == (0, "stopped"), cancelled.stderr
    assert state(tpuctl, "r2") == "stopped"
