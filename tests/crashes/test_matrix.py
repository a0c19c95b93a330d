"""Each fault at each request of `up` and `down`.

What bills is listed, `up` resumes, `down` ends everything.

Random walks of up, kill, up, down with faults: nothing bills that `ls` does not list. The world of the crash
tests: what it replaces is back when it ends.

The requests are those that the command sends when nothing happens, so that a new one is a new row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crashes import contract
from tests.crashes.faults import FAULTS, nothing
from tests.crashes.scenarios import MAIN, OTHER_ZONE, RACE, SCENARIOS, STOCKOUT, Scenario
from tests.crashes.walks import walk
from tests.crashes.world import KILLED, CrashWorld, Killed, Worlds
from tests.forks.imports import command_modules

EVERY = "TPUCTL_EVERY" in os.environ
"""Whether each fault is tried at each request: in 7,000 worlds; else few of those that only read."""
DAILY = ("killed after", "answer lost")
"""The faults that `make test` tries at each request of a scenario that changes something."""
CHANGES = ("Create", "Delete", "Start", "Stop")
"""What the methods that change something begin with."""


class Cell(NamedTuple):
    """A fault at a request, which is the `number`-th of its scenario and calls a method."""

    number: int
    method: str
    fault: str


def cells(world: CrashWorld, scenario: Scenario) -> Iterator[Cell]:
    """Yield each fault at each request; of those that are repeated while it waits, at the first.

    After a request that changes nothing is as before the next one, and as before it where its answer is lost.
    """
    scenario.begin(world)
    undisturbed = world.tpuctl(*scenario.command)
    assert undisturbed.code == 0, undisturbed.err
    last = len(world.latest) - 1
    for number, method in _first_of_each_context(world.latest):
        whens = ("before", "after") if method.startswith(CHANGES) or number == last else ("before",)
        for fault in FAULTS.values():
            if fault.when in whens and (not fault.methods or method in fault.methods):
                yield Cell(number, method, fault.name)


def _first_of_each_context(methods: Sequence[str]) -> Iterator[tuple[int, str]]:
    contexts = set()
    for number, context in enumerate(zip(["", *methods], methods, [*methods[1:], ""], strict=False)):
        if context not in contexts:
            contexts.add(context)
            yield number, context[1]


def daily(scenario: Scenario, chosen: Sequence[Cell]) -> list[Cell]:
    """Return those that `make test` tries: faults at changes, and of `up` and `down` each fault."""
    diagonal = {}
    if scenario in MAIN:
        for place, fault in enumerate(FAULTS):
            if able := [cell for cell in chosen if cell.fault == fault]:
                diagonal[fault] = able[place % len(able)]
    changes = [cell for cell in chosen if cell.fault in DAILY and cell.method.startswith(CHANGES)]
    return list(dict.fromkeys([*diagonal.values(), *changes])) or list(chosen[:1])


def most(scenario: Scenario, every: Sequence[Cell]) -> list[Cell]:
    """Return those that `make test-all` tries: faults at changes, and a twelfth of a scenario's others.

    Scenarios share most of their requests, such as the listings of `up`: each has another twelfth.
    """
    twelfth = list(SCENARIOS.values()).index(scenario)
    return [
        cell
        for place, cell in enumerate(every, start=twelfth)
        if cell.method.startswith(CHANGES) or (place + cell.number) % 12 == 0 or EVERY
    ]


def check(worlds: Worlds, name: str, choose: Callable[[Scenario, Sequence[Cell]], Sequence[Cell]]) -> None:
    """Check the promises with each chosen cell of a scenario, each in a world of its own."""
    scenario = SCENARIOS[name]
    with worlds.new() as world:
        chosen = choose(scenario, [*cells(world, scenario)])
    assert chosen
    for cell in chosen:
        with worlds.new(f"{name}: {cell}") as world:
            world.up = scenario.up
            scenario.begin(world)
            world.interfere = FAULTS[cell.fault].interference(world, cell.number)
            contract.check(world, world.tpuctl(*scenario.command), scenario.up)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_bills_is_listed_and_up_resumes_and_down_ends_it(worlds: Worlds, name: str) -> None:
    check(worlds, name, daily)


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.timeout(7200)  # hundreds of worlds, where all are tried
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_promises_hold_with_every_fault_at_every_change(worlds: Worlds, name: str) -> None:
    check(worlds, name, most)


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


def walk_all(folder: Path, seeds: range) -> None:
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        steps = walk(seed, place)
        assert steps.error == "", (seed, steps.moves)


@pytest.mark.daily
def test_nothing_is_left_that_ls_does_not_list(home: Path, tmp_path: Path) -> None:
    walk_all(tmp_path, range(10))


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.parametrize("begin", range(10, 1000 if "TPUCTL_EVERY" in os.environ else 208, 66))
def test_nothing_is_left_after_hundreds_of_walks(home: Path, tmp_path: Path, begin: int) -> None:
    walk_all(tmp_path, range(begin, begin + 66))


@pytest.mark.daily
def test_a_seed_always_gives_the_same_walk(home: Path, tmp_path: Path) -> None:
    walks = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        walks.append(walk(7, tmp_path / name))
    assert walks[0] == walks[1]


def test_no_module_of_a_command_is_imported_first_in_a_world_and_keeps_its_time(tmp_path: Path) -> None:
    """Many have `sleep: Sleep = time.sleep`, which is read when the module is imported."""
    with CrashWorld(tmp_path):
        assert not set(command_modules()) - set(sys.modules)
