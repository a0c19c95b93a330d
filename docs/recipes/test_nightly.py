"""Tests nightly.py against the simulator: what it does when the cloud does not do what it should."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import nightly
import pytest

import tpuctl
from tpuctl.errors import JobFailedError, StockoutError
from tpuctl.testing import Simulator

NIGHT = datetime.date(2026, 1, 31)
LONG = """
import os, time
print("step 40 loss 0.5", flush=True)
while os.environ["TPUCTL_ATTEMPT"] == "1":
    time.sleep(0.1)  # until its TPU is preempted
print("step 100 loss 0.0")
"""


@pytest.fixture
def client(tpu_simulator_environment: Simulator) -> Iterator[tpuctl.Client]:
    with tpuctl.Client() as opened:
        yield opened


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "points.csv").write_text("x,y\n" + "".join(f"{x / 10},{x}\n" for x in range(50)))
    return tmp_path / "points.csv"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The training program, for a test to write."""
    monkeypatch.setattr(nightly, "SCRIPT", tmp_path / "train.py")
    return tmp_path / "train.py"


def test_it_trains_and_leaves_nothing_that_bills(
    client: tpuctl.Client, tpu_simulator: Simulator, data: Path, tmp_path: Path
) -> None:
    assert nightly.retrain(client, data, NIGHT, tmp_path / "out") < nightly.WORST
    assert (tmp_path / "out" / "run.json").is_file()
    assert tpu_simulator.world.nodes() == []


def test_a_preempted_training_is_started_again(
    client: tpuctl.Client, tpu_simulator: Simulator, data: Path, script: Path, tmp_path: Path
) -> None:
    script.write_text(LONG)
    tpu_simulator.faults.add("preemption", run="nightly-*", step=40)
    assert nightly.retrain(client, data, NIGHT, tmp_path / "out") < nightly.WORST
    assert len(client.run("nightly-2026-01-31").attempts) == 2
    assert tpu_simulator.world.nodes() == []


def test_without_capacity_nothing_is_left(
    client: tpuctl.Client, tpu_simulator: Simulator, data: Path, tmp_path: Path
) -> None:
    tpu_simulator.faults.add("stockout")
    with pytest.raises(StockoutError):
        nightly.retrain(client, data, NIGHT, tmp_path / "out")
    assert tpu_simulator.world.nodes() == []


def test_a_training_that_fails_costs_no_more(
    client: tpuctl.Client, tpu_simulator: Simulator, data: Path, script: Path, tmp_path: Path
) -> None:
    script.write_text("raise SystemExit(3)\n")
    with pytest.raises(JobFailedError):
        nightly.retrain(client, data, NIGHT, tmp_path / "out")
    assert tpu_simulator.world.nodes() == []
