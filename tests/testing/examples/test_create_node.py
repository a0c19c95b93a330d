"""Tests create_node.py, which runs unchanged in its own process."""

import subprocess
import sys
from pathlib import Path

from tpuctl.testing import Simulator

SCRIPT = Path(__file__).with_name("create_node.py")


def create(sim: Simulator, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), name]
    return subprocess.run(command, env=sim.environ(), capture_output=True, text=True, timeout=60)


def test_it_creates_a_node(tpu_simulator: Simulator) -> None:
    result = create(tpu_simulator, "mine")
    node = tpu_simulator.world.node("mine")
    assert node.state == "READY"
    assert result.stdout.split() == list(node.addresses)


def test_it_reports_missing_capacity(tpu_simulator: Simulator) -> None:
    tpu_simulator.faults.add("stockout", zone="europe-west4-a", count=1)
    result = create(tpu_simulator, "mine")
    assert result.returncode == 1
    assert result.stderr.startswith("no TPU today: There is no more capacity in the zone")
    assert tpu_simulator.world.nodes() == []
