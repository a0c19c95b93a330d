"""Tests `up --race` against the simulator: who stays, what is cancelled, what two at once leave."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.polling import poll

Tpuctl = Callable[..., CommandResult]
A, B, C = "europe-west4-a", "us-central1-a", "us-east1-d"
ZONES = ("--zone", A, "--zone", B, "--zone", C)
RACE = ("up", "v3-8", "--name", "n1", *ZONES, "--race", "--yes")


def fill(simulator: RunningSimulator, *zones: str) -> None:
    """Leave no capacity in these zones."""
    for zone in zones:
        simulator.world.capacity.limits[zone, "v3-8"] = 0


def nodes(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.split("/")[3] for node in simulator.world.nodes.all())


def queued(simulator: RunningSimulator) -> list[str]:
    return sorted(item.name.split("/")[3] for item in simulator.world.queued_resources.all())


def started(*arguments: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return commands.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until_queued(simulator: RunningSimulator, zones: int) -> None:
    """Return when so many zones have a candidate."""
    poll(lambda: len(queued(simulator)) == zones or None, awaiting="the candidates", timeout=60)


def test_the_zone_with_capacity_wins_and_the_others_are_cancelled(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator, A, C)
    result = tpuctl(*RACE, "--json")
    assert result.code == 0, result.err
    assert [node["zone"] for node in result.json["nodes"]] == [B]
    assert (nodes(simulator), queued(simulator)) == ([B], [B])


def test_where_all_have_capacity_one_stays(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    result = tpuctl(*RACE)
    assert result.code == 0, result.err
    assert len(nodes(simulator)) == 1
    assert nodes(simulator) == queued(simulator)


def test_a_race_without_capacity_ends_after_the_time_and_leaves_nothing(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator, A, B, C)
    result = tpuctl(*RACE, "--wait-capacity", "1s")
    assert result.code == 5, result.err
    assert "out of the queues again" in result.err
    assert (nodes(simulator), queued(simulator)) == ([], [])


@pytest.mark.usefixtures("simulator")
def test_a_race_takes_several_zones(tpuctl: Tpuctl) -> None:
    result = tpuctl("up", "v3-8", "--race", "--zone", A, "--yes")
    assert result.code == 2
    assert "--race takes several zones" in result.err


def test_a_candidate_that_is_refused_leaves_the_race(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=A, limit=0)
    fill(simulator, B)
    result = tpuctl(*RACE)
    assert result.code == 0, result.err
    assert nodes(simulator) == [C]
    assert f"not in {A}" in result.err


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_after_the_command_has_ended_ls_shows_the_candidates_and_down_deletes_all(
    tpuctl: Tpuctl, simulator: RunningSimulator, end: signal.Signals
) -> None:
    fill(simulator, A, B, C)
    command = started(*RACE)
    wait_until_queued(simulator, 3)
    os.killpg(command.pid, end)
    output, _ = command.communicate(timeout=60)
    if end is signal.SIGINT:
        assert command.returncode == 130, output
        assert "may bill" in output
        assert "tpuctl down n1" in output
    listed = tpuctl("ls", "--json").json["queued_resources"]
    assert sorted(item["zone"] for item in listed) == sorted([A, B, C])
    assert len({item["labels"]["tpuctl-race"] for item in listed}) == 1
    assert tpuctl("down", "n1", "--yes").code == 0
    assert queued(simulator) == []


def test_the_same_command_goes_on_with_a_race_that_was_killed(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator, A, B, C)
    command = started(*RACE)
    wait_until_queued(simulator, 3)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=60)
    assert "is not decided" in tpuctl("wait", "n1").err
    del simulator.world.capacity.limits[C, "v3-8"]
    result = tpuctl(*RACE)
    assert result.code == 0, result.err
    assert (nodes(simulator), queued(simulator)) == ([C], [C])


@pytest.mark.parametrize("order", [(A, B, C), (C, A, B)])
def test_two_races_at_once_leave_one_node(
    tpuctl: Tpuctl, simulator: RunningSimulator, order: tuple[str, ...]
) -> None:
    zones = [word for zone in order for word in ("--zone", zone)]
    commands = [started(*RACE), started("up", "v3-8", "--name", "n1", *zones, "--race", "--yes")]
    outputs = [command.communicate(timeout=120)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outputs
    assert len(nodes(simulator)) == 1, outputs
    assert nodes(simulator) == queued(simulator)


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A)])
def test_two_commands_with_several_zones_at_once_leave_one_node(
    tpuctl: Tpuctl, simulator: RunningSimulator, order: tuple[str, ...]
) -> None:
    simulator.faults.add("slow-operation", method="CreateNode", seconds=1)
    zones = [word for zone in order for word in ("--zone", zone)]
    commands = [
        started("up", "v3-8", "--name", "n1", *ZONES, "--yes"),
        started("up", "v3-8", "--name", "n1", *zones, "--yes"),
    ]
    outputs = [command.communicate(timeout=120)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outputs
    assert len(nodes(simulator)) == 1, outputs


def test_after_a_kill_behind_the_create_the_same_command_elsewhere_uses_that_node(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    stuck = simulator.faults.add("stuck-operation", method="CreateNode")
    command = started("up", "v3-8", "--name", "n1", *ZONES, "--yes")
    poll(lambda: nodes(simulator) or None, awaiting="the create", timeout=60)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=60)
    simulator.faults.remove(stuck.id)
    result = tpuctl("up", "v3-8", "--name", "n1", "--zone", C, "--zone", B, "--zone", A, "--yes")
    assert result.code == 0, result.err
    assert f"n1 exists in {A}" in result.err
    assert nodes(simulator) == [A]
