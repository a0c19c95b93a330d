"""The real command in a process of its own, over the wire: killed, interrupted, and two of them at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.crashes.faults import DOWN, NAME, UP
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.sim.world import api_error

Tpuctl = Callable[..., CommandResult]
METHODS = (
    "ListAcceleratorTypes", "ListNodes", "ListQueuedResources", "ListOperations", "GetOperation", "GetNode",
    "GetGuestAttributes",
)  # fmt: skip
WAIT = 120.0


def begin(*arguments: str) -> subprocess.Popen[str]:
    """Start a command without a terminal, in a process group of its own."""
    return commands.start(
        *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end_at(
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    when: str,
    number: signal.Signals,
    *arguments: str,
) -> CommandResult:
    """Run a command that gets a signal at its first request of a method, before or after it takes effect."""
    process: list[subprocess.Popen[str]] = []
    world = simulator.world
    original = getattr(world, f"{when}_call")

    def call(called: str, *facts: object) -> None:
        original(called, *facts)
        if called == method and process:
            running = process.pop()
            os.killpg(running.pid, number)
            if number is signal.SIGKILL:
                running.wait(WAIT)
            if when == "before":
                raise api_error("unavailable")

    monkeypatch.setattr(world, f"{when}_call", call)
    running = begin(*arguments)
    process.append(running)
    out, err = running.communicate(timeout=WAIT)
    monkeypatch.setattr(world, f"{when}_call", original)
    return CommandResult(running.returncode, out, err)


def names(simulator: RunningSimulator) -> set[str]:
    """Return the name of each node in the world."""
    return {node.name.rpartition("/")[2] for node in simulator.world.nodes.all()}


def check(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    """What bills is listed, the same `up` resumes with one node, and `down` ends it."""
    before = names(simulator)
    listed = {node["name"] for node in tpuctl("ls", "--json").json["nodes"]}
    assert names(simulator) <= listed <= before, "a delete that is under way may end meanwhile"
    resumed = tpuctl(*UP)
    assert resumed.code == 0, resumed.err
    assert [node.state for node in simulator.world.nodes.all()] == ["READY"]
    assert tpuctl(*DOWN).code == 0
    assert simulator.world.nodes.all() == []


@pytest.mark.parametrize(
    ("method", "when"),
    [
        ("CreateNode", "before"),
        ("CreateNode", "after"),
        *(pytest.param(method, when, marks=pytest.mark.slow)
          for method in METHODS for when in ("before", "after")),
    ],
)  # fmt: skip
def test_up_that_is_killed_leaves_nothing_unseen(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch, method: str, when: str
) -> None:
    result = end_at(simulator, monkeypatch, method, when, signal.SIGKILL, *UP)
    assert result.code == -signal.SIGKILL, result.err
    check(simulator, tpuctl)


@pytest.mark.parametrize("when", ["before", "after"])
def test_down_that_is_killed_leaves_nothing_unseen(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    assert tpuctl(*UP).code == 0
    result = end_at(simulator, monkeypatch, "DeleteNode", when, signal.SIGKILL, *DOWN)
    assert result.code == -signal.SIGKILL, result.err
    check(simulator, tpuctl)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_without_a_terminal_sigterm_and_sighup_say_what_may_bill(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    simulator.faults.add("stuck-operation", method="CreateNode")
    result = end_at(simulator, monkeypatch, "GetOperation", "after", number, *UP)
    assert result.code == 130, result.err
    assert f"tpuctl down {NAME}" in result.err
    simulator.faults.clear()
    check(simulator, tpuctl)


def test_two_ups_of_one_name_at_once_make_one_node(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    both = [begin(*UP), begin(*UP)]
    results = [process.communicate(timeout=WAIT) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    creates = [
        event for event in simulator.events.find(kind="transition", what="CREATING") if NAME in event.resource
    ]
    assert len(creates) == 1
    check(simulator, tpuctl)
