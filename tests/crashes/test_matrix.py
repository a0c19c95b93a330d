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

from tests.crashes import contract
from tests.crashes.faults import FAULTS, nothing
from tests.crashes.scenarios import MAIN, OTHER_ZONE, RACE, SCENARIOS, STOCKOUT
from tests.crashes.world import KILLED, CrashWorld, Killed

QUICK = ("killed after", "answer lost")
"""The faults of the other scenarios that are in `make test`."""


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[CrashWorld]:
    """A world of its own, without a node."""
    with CrashWorld(tmp_path) as built:
        yield built


@cache
def steps(scenario: str) -> list[tuple[int, str]]:
    """Return the number and method of each request; of those that are repeated while it waits, the first."""
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


def cells(*, with_slow: bool) -> Iterator[object]:
    """Yield a parameter for each scenario, step and fault; thousands of slow ones only where they may run."""
    for scenario in SCENARIOS.values():
        for number, method in steps(scenario.name):
            for fault in FAULTS.values():
                if fault.methods and method not in fault.methods:
                    continue
                is_slow = scenario not in MAIN and fault.name not in QUICK
                if is_slow and not with_slow:
                    continue
                yield pytest.param(
                    scenario.name, number, fault.name,
                    id=f"{scenario.name}, {number} {method}, {fault.name}",
                    marks=[pytest.mark.slow] if is_slow else [],
                )  # fmt: skip


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
