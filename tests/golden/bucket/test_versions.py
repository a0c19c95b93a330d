"""Tests a laptop and hosts of two versions: a run that was started before an upgrade, and one that others look at."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from tests.golden.bucket.restored import COMMIT, PROGRAM, SPEC, Recording, bucket_of
from tests.golden.bucket.shown_time import ShownTime
from tests.paths import ROOT
from tests.running_simulator import CommandResult
from tpuctl.polling import Backoff, poll
from tpuctl.testing import Simulator

Tpuctl = Callable[..., CommandResult]
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
LAUNCH = 'mkdir -p "$1" && mv worker.zip spec.json "$1" && exec python3 "$PWD/$1/worker.zip" launch "$PWD/$1/spec.json"'


@pytest.fixture
def sim(home: Path, tmp_path: Path):
    with Simulator(tmp_path / "state" / "sim") as sim:
        yield sim


def until_line(tpuctl: Tpuctl, run: str) -> None:
    poll(lambda: tpuctl("logs", run).out or None, awaiting="the first line", timeout=60, backoff=Backoff(0.1))


def state(tpuctl: Tpuctl, run: str) -> str:
    (listed,) = [each for each in tpuctl("runs", "--json").json["runs"] if each["run"] == run]
    return str(listed["state"])


@pytest.mark.parametrize("end", ["by itself", "by cancel"])
def test_a_run_on_hosts_with_the_program_of_an_earlier_version_is_followed_to_its_end(
    end: str, sim: Simulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = ShownTime(monkeypatch)
    assert tpuctl("up", "v3-8", "--name", "timed", "--framework", "jax", "--yes").code == 0
    (node,) = sim.world.nodes()
    Recording().upload_submission("running", bucket_of(sim), str(node.uid))
    spec = json.loads(SPEC.read_text())
    spec["tpu_uid"], spec["environment"]["GO"] = str(node.uid), str(Path("go").absolute())
    Path("spec.json").write_text(json.dumps(spec))
    Path("worker.zip").write_bytes(PROGRAM.read_bytes())
    copied = tpuctl("cp", "worker.zip", "spec.json", "timed:.")
    assert copied.code == 0, copied.err
    launched = tpuctl("exec", "timed", "--", "sh", "-c", LAUNCH, "sh", ".tpuctl/runs/running/1")
    assert launched.code == 0, launched.err
    until_line(tpuctl, "running")
    assert state(tpuctl, "running") == "running"
    time.pass_by(60)  # it has been silent for so long: its host is asked, which is that of the old program
    assert state(tpuctl, "running") == "running"
    if end == "by cancel":
        cancelled = tpuctl("cancel", "running", "--yes")
        assert cancelled.code == 0, cancelled.err
    else:
        Path("go").touch()
    assert tpuctl("logs", "running", "-f").code == {"by itself": 0, "by cancel": 4}[end]
    assert state(tpuctl, "running") == {"by itself": "succeeded", "by cancel": "stopped"}[end]
    assert tpuctl("logs", "running").out.splitlines() == ["step 1", "step 2"][: 2 if end == "by itself" else 1]
    assert tpuctl("pull", "running", "--to", "pulled").code == 0


@pytest.fixture
def earlier(tmp_path: Path, home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line of the earlier version."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", COMMIT, "tpuctl"], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone does not have the commit {COMMIT}: git fetch --unshallow")
    folder = tmp_path / "earlier"
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        import os

        return subprocess.run(
            [sys.executable, "-m", "tpuctl", *words],
            env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def test_a_laptop_with_an_earlier_version_follows_and_stops_a_run_on_hosts_of_this_one(
    sim: Simulator, tpuctl: Tpuctl, earlier: Callable[..., subprocess.CompletedProcess[str]]
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
    assert earlier("pull", "r1", "--to", "pulled").returncode == 0
