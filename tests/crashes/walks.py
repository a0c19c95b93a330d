"""Random walks: up, down, reap, stop, start, kills and faults, in any order; a seed gives one walk.

    python -m tests.crashes.walks --count 1000 --seed 0

Prints JSON: the number of walks, commands and kills, and each seed that fails, with its moves and the error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.crashes import contract
from tests.crashes.faults import DOWN, FAULTS, UP
from tests.crashes.scenarios import BOTH, ENDING, PATIENT, RACE, REAP, START, STOP
from tests.crashes.world import KILLED, CrashWorld
from tpuctl.sim.world import ApiError

UPS = (UP, PATIENT, BOTH, RACE, ENDING)
MOST_MOVES = 8
MOST_STEPS = 40
"""The last request of a command that a fault may meet."""
FAULT_SHARE, KILL_SHARE = 0.75, 0.5
"""Of the commands that a fault meets, and of the faults that are kills."""
KILLS = ("killed before", "killed after")
PAUSES = (0.0, 1.0, 10.0, 600.0, 1800.0)
"""Seconds between two commands."""


@dataclass
class Walk:
    """One walk: what was done, and how it failed if it did."""

    seed: int
    moves: list[str] = field(default_factory=list)
    kills: int = 0
    error: str = ""


def walk(seed: int, folder: Path) -> Walk:
    """Take a walk in a world of its own; raises nothing, but says what was wrong."""
    steps = Walk(seed)
    with CrashWorld(folder) as world:
        try:
            _move_about(world, random.Random(seed), steps)
        except AssertionError as error:
            steps.error = str(error)
    return steps


def _move_about(world: CrashWorld, draw: random.Random, steps: Walk) -> None:
    up = world.up = draw.choice(UPS)
    for _ in range(draw.randint(2, MOST_MOVES)):
        _move(world, draw, steps, up)
        contract.assert_listed(world)
        if up in (UP, PATIENT, ENDING):
            assert len(world.world.nodes.all()) <= 1, f"two nodes under one name: {world.billing}"
        if draw.random() < 0.5:
            world.faults.clear()
    steps.moves.append("the faults end")
    world.faults.clear()
    contract.assert_up_resumes(world, up)
    contract.assert_listed(world)
    contract.assert_down_ends_it(world)


def _move(world: CrashWorld, draw: random.Random, steps: Walk, up: Sequence[str]) -> None:
    pause = draw.choice(PAUSES)
    world.pass_time(pause)
    if draw.random() < 0.1:
        _preempt_any(world, draw)
        steps.moves.append("preemption")
    others = [DOWN, ("down", "--all", "--yes"), ("up", *up[1:], "--spot"), REAP, STOP, START]
    command = draw.choice([up, up, up, *others])
    move = f"after {pause:g} s: {' '.join(command)}"
    if draw.random() < FAULT_SHARE:
        fault = FAULTS[draw.choice(KILLS if draw.random() < KILL_SHARE else list(FAULTS))]
        step = draw.randrange(draw.choice([5, 15, MOST_STEPS]))
        world.interfere = fault.interference(world, step)
        move += f" [{fault.name}, request {step}]"
    steps.moves.append(move)
    ready = contract.ready_nodes(world) if command is REAP else []
    result = world.tpuctl(*command)
    world.interfere = lambda method, number, when: None
    steps.moves[-1] += f" -> {result.code}"
    steps.kills += result.code == KILLED
    contract.assert_told(world, result)
    if not any(other in move for other in ("another", "preempted")):
        contract.assert_spared(world, ready)


def _preempt_any(world: CrashWorld, draw: random.Random) -> None:
    nodes = sorted(node.name for node in world.world.nodes.all())
    if nodes:
        try:
            world.do(world.world.preempt(draw.choice(nodes)))
        except ApiError:
            pass  # a state in which no node is preempted


def main(arguments: Sequence[str] | None = None) -> int:
    """Take walks and print what came of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first walk")
    options = parser.parse_args(arguments)
    began, used = time.perf_counter(), time.process_time()
    with own_environment():
        walks = [_in_fresh_folder(seed) for seed in range(options.seed, options.seed + options.count)]
    failed = [steps for steps in walks if steps.error]
    report = {
        "walks": len(walks),
        "moves": sum(len(steps.moves) for steps in walks),
        "kills": sum(steps.kills for steps in walks),
        "failed": [asdict(steps) for steps in failed],
        "seconds": {"wall": time.perf_counter() - began, "cpu": time.process_time() - used},
    }
    print(json.dumps(report, indent=2))
    return 1 if failed else 0


def _in_fresh_folder(seed: int) -> Walk:
    with tempfile.TemporaryDirectory(prefix="tpuctl-walk-") as folder:
        return walk(seed, Path(folder))


@contextmanager
def own_environment() -> Iterator[None]:
    """Use a home and a configuration of its own inside the block."""
    before, folder_before = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="tpuctl-walks-") as folder:
        for name in [name for name in os.environ if name.startswith(("TPUCTL_", "GOOGLE_", "CLOUDSDK_"))]:
            del os.environ[name]
        os.environ.update(
            HOME=folder, TPUCTL_STATE=f"{folder}/state", TPUCTL_TARGET="sim", TPUCTL_CROSS_REGION="yes"
        )
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(folder_before)
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    sys.exit(main())
