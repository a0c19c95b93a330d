"""Tests `up --queued`, `--slices`, `--detach` and `wait` against the simulator."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.nodes.down import down, plan_down
from tpuctl.flows.progress import silent
from tpuctl.polling import poll

Tpuctl = Callable[..., CommandResult]
ZONE = "europe-west4-a"
UP = ("up", "v3-8", "--name", "n1", "--yes")


def fill(simulator: RunningSimulator) -> None:
    """Leave no capacity."""
    simulator.world.capacity.limits[ZONE, "v3-8"] = 0


def empty(simulator: RunningSimulator) -> None:
    """Give the capacity back."""
    del simulator.world.capacity.limits[ZONE, "v3-8"]


def states(simulator: RunningSimulator) -> list[str]:
    return [queued.state for queued in simulator.world.queued_resources.all()]


def names(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.rpartition("/")[2] for node in simulator.world.nodes.all())


def preempt(simulator: RunningSimulator, name: str) -> None:
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{ZONE}/nodes/{name}"))


def test_a_queued_tpu_is_waited_for(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    result = tpuctl(*UP, "--queued", "--json")
    assert result.code == 0, result.err
    assert [node["name"] for node in result.json["nodes"]] == ["n1"]
    assert states(simulator) == ["ACTIVE"]


def test_all_slices_are_waited_for(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    result = tpuctl(*UP, "--slices", "3", "--json")
    assert result.code == 0, result.err
    assert sorted(node["name"] for node in result.json["nodes"]) == ["n1-0", "n1-1", "n1-2"]
    assert result.err.count("waiting for SSH on 1 host") == 3
    again = tpuctl(*UP, "--slices", "3")
    assert again.code == 0, again.err
    assert "n1 exists" in again.err
    assert names(simulator) == ["n1-0", "n1-1", "n1-2"]


def test_another_number_of_slices_is_another_tpu(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    assert tpuctl(*UP, "--slices", "2").code == 0
    result = tpuctl(*UP, "--slices", "3")
    assert result.code == 4
    assert "has 2 slices" in result.err


def test_detach_leaves_and_wait_comes_back(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    fill(simulator)
    detached = tpuctl(*UP, "--queued", "--detach", "--json")
    assert detached.code == 0, detached.err
    assert [queued["name"] for queued in detached.json["queued_resources"]] == ["n1"]
    assert "tpuctl wait n1" in detached.err
    waited = tpuctl("wait", "n1", "--timeout", "1s")
    assert waited.code == 9
    assert f"'n1' still waits for capacity in {ZONE}" in waited.err
    assert states(simulator) != []
    empty(simulator)
    result = tpuctl("wait", "n1", "--json")
    assert result.code == 0, result.err
    assert [node["name"] for node in result.json["nodes"]] == ["n1"]


def test_wait_for_nothing_names_what_there_is(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("wait", "n2")
    assert result.code == 4
    assert "Did you mean n1?" in result.err


def test_wait_takes_no_silent_zone_for_an_empty_one(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("unreachable", zone=ZONE)
    result = tpuctl("wait", "n1")
    assert result.code == 9
    assert f"No answer from {ZONE}: 'n1' may be there." in result.err


def test_the_queue_is_left_after_the_time(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    fill(simulator)
    result = tpuctl(*UP, "--queued", "--wait-capacity", "1s")
    assert result.code == 5, result.err
    assert "out of the queue again" in result.err
    assert states(simulator) == []


def test_a_suspended_tpu_is_deleted_with_its_queued_resource_and_made_anew(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    assert tpuctl(*UP, "--queued", "--spot").code == 0
    preempt(simulator, "n1")
    poll(lambda: states(simulator) == ["SUSPENDED"] or None, awaiting="the suspension", timeout=60)
    assert tpuctl(*UP[:-1], "--queued", "--spot").code == 10, "it asks first"
    planned = tpuctl(*UP, "--queued", "--spot", "--dry-run", "--json").json["requests"]
    assert [request["method"] for request in planned] == ["POST", "DELETE", "POST"], "the record first"
    result = tpuctl(*UP, "--queued", "--spot")
    assert result.code == 0, result.err
    assert states(simulator) == ["ACTIVE"]
    assert [node.state for node in simulator.world.nodes.all()] == ["READY"]


def test_a_name_that_was_used_again_while_the_question_waited_is_left_alone(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator
) -> None:
    assert tpuctl(*UP, "--queued").code == 0
    plan = plan_down(cloud.provider, ("n1",), "anybody")
    assert tpuctl("down", "n1", "--yes").code == 0
    assert tpuctl(*UP, "--queued").code == 0
    down(cloud.provider, plan, silent)
    assert (states(simulator), names(simulator)) == (["ACTIVE"], ["n1"])


def test_a_failed_request_says_why_and_is_replaced(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add(
        "failed-operation", method="CreateQueuedResource", code="INVALID_ARGUMENT", message="Bad.", count=1
    )
    result = tpuctl(*UP, "--queued")
    assert result.code == 2, result.err
    assert "Queued resource 'n1' in europe-west4-a: Bad." in result.err
    assert tpuctl(*UP, "--queued").code == 0
    assert states(simulator) == ["ACTIVE"]


def test_a_request_that_has_failed_is_deleted_before_the_next_zone_is_tried(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    simulator.faults.add(
        "failed-operation", method="CreateQueuedResource", code="RESOURCE_EXHAUSTED",
        message="There is no more capacity.", zone=ZONE,
    )  # fmt: skip
    result = tpuctl(*UP, "--queued", "--zone", ZONE, "--zone", "us-central1-a")
    assert result.code == 0, result.err
    names = [queued.name for queued in simulator.world.queued_resources.all()]
    assert [name.split("/")[3] for name in names] == ["us-central1-a"]


def test_quota_0_in_the_queue_is_said_at_once(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=ZONE, limit=0)
    result = tpuctl(*UP, "--queued", "--wait-capacity", "6h")
    assert result.code == 6, result.err
    assert states(simulator) == []


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("arguments", [("--zone", "any", "--detach"), ("--detach", "--wait-capacity", "1h")])
def test_options_that_contradict_each_other_are_refused(tpuctl: Tpuctl, arguments: tuple[str, ...]) -> None:
    result = tpuctl(*UP, *arguments)
    assert result.code == 2
    assert "--detach leaves at once" in result.err


def test_ctrl_c_in_the_queue_says_what_may_bill_and_the_same_command_goes_on(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator)
    command = commands.start(
        *UP, "--queued", "--ttl", "8h", "--label", "team=ab", "--json",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    poll(lambda: states(simulator) == ["WAITING_FOR_RESOURCES"] or None, awaiting="the queue", timeout=60)
    os.killpg(command.pid, signal.SIGINT)
    output, _ = command.communicate(timeout=60)
    assert command.returncode == 130, output
    assert "'n1' was being created; it may bill already" in output
    resume = "tpuctl up v3-8 --name n1 --queued --ttl 8h --label team=ab"
    assert f"Hint: Resume: {resume}\n      Delete it: tpuctl down n1\n" in output
    empty(simulator)
    assert tpuctl(*resume.split()[1:], "--yes").code == 0
    assert states(simulator) == ["ACTIVE"]
