"""Tests the commands stop and start against the simulator."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.errors import NotFoundError
from tpuctl.flows.nodes.down import down, plan_down
from tpuctl.flows.nodes.power import plan_start, plan_stop, start, stop
from tpuctl.flows.progress import silent

Tpuctl = Callable[..., CommandResult]


def requests(simulator: RunningSimulator, *methods: str) -> list[str]:
    return [event.what for event in simulator.events.find(kind="request") if event.what in methods]


def state(simulator: RunningSimulator) -> str:
    return simulator.world.nodes.all()[0].state


def test_a_node_is_stopped_and_started(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    dry = tpuctl("stop", node, "--dry-run")
    assert dry.out.startswith("POST https://tpu.googleapis.com/v2/projects/")
    assert f"/nodes/{node}:stop" in dry.out
    assert state(simulator) == "READY"
    stopped = tpuctl("stop", node, "--yes")
    assert stopped.code == 0, stopped.err
    assert "STOPPED" in stopped.out
    assert "its boot disk does, and so do its data disks" in stopped.err
    assert f"tpuctl start {node}" in stopped.err
    assert state(simulator) == "STOPPED"
    dry = tpuctl("start", node, "--dry-run")
    assert f"/nodes/{node}:start" in dry.out
    started = tpuctl("start", node, "--yes", "--json")
    assert started.code == 0, started.err
    assert started.json["nodes"][0]["state"] == "READY"
    assert state(simulator) == "READY"


def test_each_can_be_run_twice(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    for command in ("stop", "stop", "start", "start"):
        result = tpuctl(command, node, "--yes")
        assert result.code == 0, result.err
    assert requests(simulator, "StopNode", "StartNode") == ["StopNode", "StartNode"]
    assert tpuctl("start", node, "--dry-run", "--json").json["requests"] == []


def test_both_ask_first(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    asked = tpuctl("stop", node)
    assert asked.code == 10
    assert re.search(rf"^{node} .* READY ", asked.err, re.MULTILINE)
    assert "Its programs end, and others may take its chips: it can fail to start again." in asked.err
    assert state(simulator) == "READY"
    assert tpuctl("stop", node, "--yes").code == 0
    asked = tpuctl("start", node)
    assert asked.code == 10
    assert re.search(rf"^{node} .* STOPPED ", asked.err, re.MULTILINE)
    assert re.search(r"^price per hour  \d+\.\d\d USD", asked.err, re.MULTILINE)
    assert asked.out == ""
    assert state(simulator) == "STOPPED"
    started = tpuctl("start", node, "--yes")
    assert "tpuctl submit SCRIPT" in started.err
    assert "price per hour" not in tpuctl("start", node, "--yes").err, "it is READY"


def test_a_lost_answer_is_no_failure(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    for command, method in (("stop", "StopNode"), ("start", "StartNode")):
        simulator.faults.add("unavailable", method=method, when="after", count=1)
        result = tpuctl(command, node, "--yes")
        assert result.code == 0, result.err


def test_a_node_that_has_the_name_after_the_question_is_not_stopped(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, node: str
) -> None:
    plan = plan_stop(cloud.provider, node)
    assert tpuctl("down", node, "--yes").code == 0
    assert tpuctl("up", "v3-8", "--name", node, "--yes").code == 0
    with pytest.raises(NotFoundError, match="its name is another node's now"):
        stop(cloud.provider, plan, silent)
    assert (state(simulator), requests(simulator, "StopNode")) == ("READY", [])


def test_a_node_that_has_the_name_after_the_question_is_not_started(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, node: str
) -> None:
    assert tpuctl("stop", node, "--yes").code == 0
    plan, key = plan_start(cloud.provider, node), cloud.ssh.login_key()
    assert tpuctl("down", node, "--yes").code == 0
    assert tpuctl("up", "v3-8", "--name", node, "--yes").code == 0
    assert tpuctl("stop", node, "--yes").code == 0
    with pytest.raises(NotFoundError, match="its name is another node's now"):
        start(cloud.provider, cloud.ssh, plan, key, silent)
    assert (state(simulator), requests(simulator, "StartNode")) == ("STOPPED", [])


def test_a_node_that_is_being_stopped_is_deleted_once_it_is_stopped(
    cloud: Cloud, simulator: RunningSimulator, node: str
) -> None:
    stuck, reports = simulator.faults.add("stuck-operation", method="StopNode"), list[str]()
    plan = plan_stop(cloud.provider, node)
    assert plan.change
    cloud.provider.begin(plan.change)

    def report(line: str) -> None:
        reports.append(line)
        if "STOPPING" in line:
            simulator.faults.remove(stuck.id)

    down(cloud.provider, plan_down(cloud.provider, (node,), "anybody"), report)
    assert reports == [f"{node} is STOPPING: it is deleted as soon as it can be", f"deleted {node}"]
    assert simulator.world.nodes.all() == []


def test_no_capacity_to_start_is_a_stockout(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    assert tpuctl("stop", node, "--yes").code == 0
    simulator.faults.add("stockout")
    result = tpuctl("start", node, "--yes")
    assert result.code == 5, result.err
    assert f"Its disk is kept: try 'tpuctl start {node}' later" in result.err
    assert state(simulator) == "STOPPED"


@pytest.mark.parametrize(
    ("options", "reason"),
    [(("v3-32", "--framework", "tensorflow"), "it has 4 hosts"), (("v3-8", "--spot"), "it is a spot TPU")],
)
def test_what_cannot_be_stopped_is_refused_before_anything_is_sent(
    tpuctl: Tpuctl, simulator: RunningSimulator, options: tuple[str, ...], reason: str
) -> None:
    assert tpuctl("up", *options, "--name", "n1", "--yes").code == 0
    for command in ("stop", "start"):
        result = tpuctl(command, "n1", "--yes")
        assert result.code == 4
        assert reason in result.err
        assert "tpuctl down n1" in result.err
    assert requests(simulator, "StopNode", "StartNode") == []


def test_commands_that_need_a_ready_node_name_start(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    assert tpuctl("stop", node, "--yes").code == 0
    Path("job.py").write_text("print('hello')\n")
    for command in (("submit", "job.py"), ("submit", "job.py", "--tpu", node)):
        result = tpuctl(*command)
        assert result.code == 4, result.err
        assert f"Node '{node}' is STOPPED." in result.err
        assert f"tpuctl start {node}" in result.err
    again = tpuctl("up", "v3-8", "--name", node, "--yes")
    assert again.code == 0, again.err
    assert state(simulator) == "READY"


def test_a_run_of_a_stopped_node_was_stopped(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    Path("job.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    assert tpuctl("stop", node, "--yes").code == 0
    listed = tpuctl("runs", "--json").json["runs"]
    assert [run["state"] for run in listed] == ["stopped"]


def test_a_spot_tpu_that_was_stopped_is_replaced(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    """`gcloud compute tpus tpu-vm stop` takes one, and nothing starts it again."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--spot", "--yes").code == 0
    (stopped,) = simulator.world.nodes.all()

    async def stop_it() -> None:
        operation = simulator.world.nodes.stop(stopped.name)
        async with asyncio.timeout(60):
            while not simulator.world.operations.get(operation.name).done:
                await asyncio.sleep(0.01)

    simulator.call(stop_it())
    assert "stopped, and spot: never runs again" in tpuctl("ls").out
    reached = tpuctl("exec", "n1", "--", "true")
    assert (reached.code, "Node 'n1' is STOPPED." in reached.err) == (7, True), reached.err
    assert "tpuctl down n1" in reached.err
    assert "tpuctl start" not in reached.err
    up = tpuctl("up", "v3-8", "--name", "n1", "--spot", "--yes")
    assert up.code == 0, up.err
    (created,) = simulator.world.nodes.all()
    assert (created.state, created.uid != stopped.uid) == ("READY", True)
