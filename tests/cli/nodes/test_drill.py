"""Tests the command drill: the API's own simulated maintenance, and the simulator's preemption."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
JOB = """
import os, pathlib, time
folder = os.environ["TPUCTL_CHECKPOINT_DIR"]
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tpuctl: Tpuctl, node: str) -> str:
    """The name of a run that goes on until it is ended."""
    Path("job.py").write_text(JOB)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    return "r1"


def calls(simulator: RunningSimulator) -> list[str]:
    return [
        event.resource for event in simulator.events.find(kind="request", what="SimulateMaintenanceEvent")
    ]


def test_a_maintenance_is_simulated_by_the_api_and_the_run_goes_on(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, run: str
) -> None:
    dry = tpuctl("drill", node, "--dry-run")
    assert dry.out.startswith("POST https://tpu.googleapis.com/v2alpha1/projects/")
    assert f"/nodes/{node}:simulateMaintenanceEvent\n" in dry.out
    assert '"workerIds"' in dry.out
    assert calls(simulator) == []
    asked = tpuctl("drill", node)
    assert asked.code == 10
    assert f"Running there: {run}." in asked.err
    assert calls(simulator) == []
    result = tpuctl("drill", node, "--yes", "--json")
    assert result.code == 0, result.err
    assert [name.rpartition("/")[2] for name in calls(simulator)] == [node]
    (sent,) = simulator.events.find(kind="request", what="SimulateMaintenanceEvent")
    shown = tpuctl("drill", node, "--dry-run", "--json").json["requests"]
    assert shown[0]["url"].endswith(f"/v2alpha1/{sent.resource}:simulateMaintenanceEvent")
    assert sent.body is not None
    assert sent.body["workerIds"] == shown[0]["body"]["workerIds"]
    report = result.json["drill"]
    assert (report["node"], report["state"]) == (node, "READY")
    assert report["maintenance"]["status"] == "PENDING"
    assert report["runs"][0]["run"] == run
    assert report["runs"][0]["after"] == "running"
    assert report["runs"][0]["evidence"] == "every worker has sent a heartbeat since"
    assert [moment["event"] for moment in report["moments"]][:2] == [
        f"{node} is READY", "simulating a maintenance of worker 0",
    ]  # fmt: skip


def test_a_preemption_ends_node_and_run(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, run: str
) -> None:
    assert tpuctl("drill", node, "--preempt", "--dry-run", "--json").json["requests"] == []
    assert simulator.world.nodes.all()[0].state == "READY"
    result = tpuctl("drill", node, "--preempt", "--yes")
    assert result.code == 0, result.err
    assert f"{node} is PREEMPTED" in result.out
    evidence = "the node is PREEMPTED|the host of worker 0 announced its preemption"
    assert re.search(f"then preempted: ({evidence})", result.out), result.out
    assert "last checkpoint  none, then none" in result.out
    assert f"tpuctl down {node}" in result.err
    assert tpuctl("runs", "--json").json["runs"][0]["state"] == "preempted"


def test_another_persons_node_is_refused_until_its_owner_is_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tpuctl("ls", "--json").json["nodes"][0]["owner"]
    monkeypatch.setenv("TPUCTL_OWNER", "other@example.com")
    for whose in ((), ("--owner", "somebody@example.com"), ("--owner", "-")):
        result = tpuctl("drill", node, "--yes", *whose)
        assert result.code == 4
        assert f"Node '{node}' is not yours" in result.err
        assert owner not in result.err
    assert calls(simulator) == []
    assert tpuctl("drill", node, "--yes", "--owner", owner).code == 0


def test_a_worker_that_is_not_there_is_refused(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    for worker in ("1", "-1"):
        result = tpuctl("drill", node, "--worker", worker, "--yes")
        assert result.code == 2
        assert f"has no worker {worker}" in result.err


def test_google_preempts_nothing_on_request(tpuctl: Tpuctl, home: Path) -> None:
    result = tpuctl("drill", "n1", "--preempt", "--yes", "--target", "gcp", "--project", "my-project")
    assert result.code == 2
    assert "Google has no request that preempts a TPU" in result.err


def test_a_stopped_node_has_no_drill(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    assert tpuctl("stop", node, "--yes").code == 0
    result = tpuctl("drill", node, "--yes")
    assert result.code == 4
    assert f"tpuctl start {node}" in result.err
