"""Each fault at each request of `up` and `down`: what bills is listed, `up` resumes, `down` ends everything.

The requests are those that the command sends when nothing happens, so that a new one is a new row.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.crashes import contract
from tests.crashes.faults import FAULTS, Fault, nothing
from tests.crashes.scenarios import MAIN, OTHER_ZONE, RACE, SCENARIOS, STOCKOUT, Scenario
from tests.crashes.world import KILLED, CrashWorld, Killed
from tests.ordering.shared import shared

QUICK = ("killed after", "answer lost")
"""The faults that `make test` tries at each request that changes something, and in turn at the others."""
CHANGES = ("Create", "Delete", "Start", "Stop")
"""What the methods that change something begin with."""
STRIDE = 5
"""At the other requests of `up` and `down`, `make test` tries one fault in five, at each request others."""
REPRESENTATIVES = {scenario.command[0]: scenario.name for scenario in reversed(SCENARIOS.values())}
"""Command -> the scenario of it in which every fault happens once or more in `make test`."""


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[CrashWorld]:
    """A world of its own, without a node."""
    with CrashWorld(tmp_path) as built:
        yield built


@cache
def steps(scenario: str) -> list[tuple[int, str]]:
    """Return the number and method of each request; of those that are repeated while it waits, the first."""
    return [(number, method) for number, method in shared(f"crashes, {scenario}", lambda: _steps(scenario))]


def _steps(scenario: str) -> list[tuple[int, str]]:
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HOME=folder, TPUCTL_STATE=f"{folder}/state", TPUCTL_TARGET="sim")
        try:
            with CrashWorld(Path(folder)) as world:
                SCENARIOS[scenario].begin(world)
                world.tpuctl(*SCENARIOS[scenario].command)
                return list(_first_of_each_context(world.latest))
        except AssertionError:
            return [(0, "nothing")]  # its test fails, and not the collection of all tests
        finally:
            os.environ.clear()
            os.environ.update(environment)


def _first_of_each_context(methods: Sequence[str]) -> Iterator[tuple[int, str]]:
    contexts = set()
    for number, context in enumerate(zip(["", *methods], methods, [*methods[1:], ""], strict=False)):
        if context not in contexts:
            contexts.add(context)
            yield number, context[1]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "step" in metafunc.fixturenames:
        without_slow = metafunc.config.getoption("markexpr") == "not slow"
        metafunc.parametrize(("scenario", "step", "fault"), list(cells(with_slow=not without_slow)))


def cells(*, with_slow: bool) -> Iterator[ParameterSet]:
    """Yield a parameter for each scenario, step and fault; thousands of slow ones only where they may run."""
    for scenario in SCENARIOS.values():
        for position, (number, method) in enumerate(steps(scenario.name)):
            for fault in FAULTS.values():
                if fault.methods and method not in fault.methods:
                    continue
                is_slow = not is_quick(scenario, position, method, fault)
                if is_slow and not with_slow:
                    continue
                yield pytest.param(
                    scenario.name, number, fault.name,
                    id=f"{scenario.name}, {number} {method}, {fault.name}",
                    marks=[pytest.mark.slow] if is_slow else [],
                )  # fmt: skip


def is_quick(scenario: Scenario, position: int, method: str, fault: Fault) -> bool:
    """Return whether `make test` tries a fault at a request, which is the scenario's `position`-th."""
    diagonal = position + list(FAULTS).index(fault.name)
    if fault.name in QUICK and (
        method.startswith(CHANGES) or fault.name == QUICK[position % len(QUICK)] or scenario in MAIN
    ):
        return True
    if scenario in MAIN:
        return method.startswith(CHANGES) or bool(fault.methods) or diagonal % STRIDE == 0
    if REPRESENTATIVES[scenario.command[0]] != scenario.name:
        return False
    return bool(fault.methods) or diagonal % len(steps(scenario.name)) == 0


def test_the_quick_cells_have_each_request_of_each_scenario_and_each_fault_of_each_command() -> None:
    quick = [cell.values for cell in cells(with_slow=False)]
    requests = {(name, number) for name in SCENARIOS for number, _ in steps(name)}
    assert {(name, number) for name, number, _ in quick} == requests
    faults = {(SCENARIOS[name].command[0], fault) for name, _, fault in quick}
    every = (cell.values for cell in cells(with_slow=True))
    assert faults == {(SCENARIOS[name].command[0], fault) for name, _, fault in every}


def test_what_bills_is_listed_and_up_resumes_and_down_ends_it(
    world: CrashWorld, scenario: str, step: int, fault: str
) -> None:
    plan = SCENARIOS[scenario]
    world.up = plan.up
    plan.begin(world)
    world.interfere = FAULTS[fault].interference(world, step)
    contract.check(world, world.tpuctl(*plan.command), plan.up)


def test_the_dry_run_of_a_race_that_goes_on_shows_the_candidate_that_is_missing(world: CrashWorld) -> None:
    def kill_after_the_first(method: str, number: int, when: str) -> None:
        if (method, when) == ("CreateQueuedResource", "after"):
            raise Killed

    world.interfere = kill_after_the_first
    STOCKOUT(world)
    assert world.tpuctl(*RACE).code == KILLED
    world.interfere = nothing
    requests = world.tpuctl(*RACE, "--dry-run", "--json").json["requests"]
    assert [request["method"] for request in requests] == ["POST"]
    assert f"/locations/{OTHER_ZONE}/" in requests[0]["url"]
    assert world.tpuctl(*RACE).code == 0
    assert world.latest.count("CreateQueuedResource") == 1
