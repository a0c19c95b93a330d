"""What the matrix and the walks begin with: a command, and what there is when it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.crashes.faults import DOWN, NAME, NODE, UP, ZONE, nothing
from tests.crashes.world import KILLED, CrashWorld, Killed

OTHER_ZONE = "us-central1-a"
BOTH = ("up", "v3-8", "--name", NAME, "--zone", ZONE, "--zone", OTHER_ZONE, "--yes")
RACE = (*BOTH, "--race")
PATIENT = (*UP, "--wait-capacity", "1h")
ENDING = (*UP, "--ttl", "1h")
STOP, START, REAP = ("stop", NAME, "--yes"), ("start", NAME, "--yes"), ("reap", "--yes")
Begin = Callable[[CrashWorld], object]


@dataclass(frozen=True)
class Scenario:
    """A command, and what is there before it."""

    name: str
    command: Sequence[str]
    begin: Begin = lambda world: None
    up: Sequence[str] = UP
    """The command that resumes."""


def run(*arguments: str) -> Begin:
    """Return what runs a command that succeeds."""

    def begin(world: CrashWorld) -> None:
        result = world.tpuctl(*arguments)
        assert result.code == 0, result.err

    return begin


def in_order(*parts: Begin) -> Begin:
    """Return what does one after the other."""

    def begin(world: CrashWorld) -> None:
        for part in parts:
            part(world)

    return begin


def add(kind: str, **options: object) -> Begin:
    """Return what puts a fault of the simulator in force."""
    return lambda world: world.faults.add(kind, **options)


def preempt(world: CrashWorld) -> None:
    """Preempt every node, and let its queued resource see it."""
    for node in world.world.nodes.all():
        world.do(world.world.preempt(node.name))
    world.pass_time(60)


def stop(world: CrashWorld) -> None:
    """Stop the node as the console does."""

    async def send() -> None:
        world.world.nodes.stop(NODE)

    world.do(send())
    world.pass_time(60)


def kill_waiting_race(world: CrashWorld) -> None:
    """Leave a candidate in the queue of each zone, without capacity, and the command killed."""

    def interfere(method: str, number: int, when: str) -> None:
        if len(world.world.queued_resources.all()) == len((ZONE, OTHER_ZONE)):
            raise Killed

    world.interfere = interfere
    assert world.tpuctl(*RACE).code == KILLED
    world.interfere = nothing


def leave_preempted_twin(world: CrashWorld) -> None:
    """Kill a race once every zone has a node, and preempt one of them."""

    def interfere(method: str, number: int, when: str) -> None:
        states = [node.state for node in world.world.nodes.all()]
        if states == ["READY"] * len((ZONE, OTHER_ZONE)):
            raise Killed

    world.interfere = interfere
    assert world.tpuctl(*RACE).code == KILLED
    world.interfere = nothing
    world.do(world.world.preempt(world.world.nodes.all()[0].name))
    world.pass_time(60)


STOCKOUT = add("stockout", zone=ZONE)
MAIN = (Scenario("up", UP), Scenario("down", DOWN, run(*UP)))
"""Those of which every fault at a request that changes something is in `make test`."""
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *MAIN,
        Scenario("up in the next zone", BOTH, STOCKOUT, BOTH),
        Scenario("up --race", RACE, up=RACE),
        Scenario("up --wait-capacity", PATIENT, add("stockout", count=2), PATIENT),
        Scenario("up after a preemption", UP, in_order(run(*UP), preempt)),
        Scenario("up of a stopped node", UP, in_order(run(*UP), stop)),
        Scenario("up of one that is being created", UP, run(*UP, "--detach")),
        Scenario("wait", ("wait", NAME, "--tpu"), run(*UP, "--detach")),
        Scenario("down of one that is being created", DOWN, run(*UP, "--detach")),
        Scenario("down of a preempted node", DOWN, in_order(run(*UP), preempt)),
        Scenario("down of a stopped node", DOWN, in_order(run(*UP), stop)),
        Scenario("stop", STOP, run(*UP)),
        Scenario("start", START, in_order(run(*UP), stop)),
        Scenario("reap of a preempted node", REAP, in_order(run(*UP), preempt)),
        Scenario("reap of a suspended queued resource", REAP, in_order(run(*RACE), preempt), RACE),
        Scenario("down of a race", DOWN, run(*RACE), RACE),
        Scenario("down of waiting candidates", DOWN, in_order(add("stockout"), kill_waiting_race), RACE),
        Scenario("down of a suspended queued resource", DOWN, in_order(run(*RACE), preempt), RACE),
        Scenario("up beside a preempted twin", RACE, leave_preempted_twin, RACE),
        Scenario("up of a suspended queued resource", RACE, in_order(run(*RACE), preempt), RACE),
    )
}
"""By name."""
