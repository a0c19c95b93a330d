"""`tpuctl up` of 1, 64 and 256 simulated hosts: the command's own share, and that of the simulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.measure import show, side_by_side
from benchmarks.own_simulator import own_simulator

SLICES = {"v3-8": 1, "v3-512": 64, "v3-2048": 256}
"""Type -> hosts."""
ZONE = "europe-west4-a"


@dataclass(frozen=True)
class Share:
    """What one command took: seconds by the clock, and CPU seconds of the command and of the simulator."""

    command: str
    hosts: int
    wall: float
    cpu: float
    simulator_cpu: float


def main() -> None:
    """Measure and report."""
    with own_simulator() as (_, served):
        shares = [share for kind in SLICES for share in _up_and_down(kind, served.pid, os.environ)]
    lines = [
        f"  {share.command:<24} {share.hosts:4d} hosts {share.wall:8.2f} s wall {share.cpu:8.2f} s CPU "
        f"{share.simulator_cpu:8.2f} s CPU of the simulator"
        for share in shares
    ]
    notes = ["`up` again finds the node, and waits for SSH on every host; one run of each command"]
    show("provisioning", {"rows": [asdict(share) for share in shares]}, lines, notes)


def _up_and_down(kind: str, server: int, environment: Mapping[str, str]) -> list[Share]:
    """Measure `up`, `up` again, and `down` of a type; the simulator has no node before and after."""
    tpuctl = [str(Path(sys.executable).with_name("tpuctl"))]
    commands = {
        f"up {kind}": ["up", kind, "--name", "bench", "--zone", ZONE, "--yes"],
        f"up {kind} again": ["up", kind, "--name", "bench", "--zone", ZONE, "--yes"],
        f"down, a {kind}": ["down", "bench", "--yes"],
    }
    return [
        _measure(name, SLICES[kind], [*tpuctl, *words], server, environment)
        for name, words in commands.items()
    ]


def _measure(
    name: str, hosts: int, command: Sequence[str], server: int, environment: Mapping[str, str]
) -> Share:
    before = _cpu_seconds(server)
    ((wall, cpu),) = side_by_side({name: command}, runs=1, environment=environment, warm_up=False)[name]
    return Share(name, hosts, wall, cpu, _cpu_seconds(server) - before)


def _cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process and of its children, those that have ended included."""
    parent = psutil.Process(process)
    times = parent.cpu_times()
    own = times.user + times.system + times.children_user + times.children_system
    children = (child.cpu_times() for child in parent.children(recursive=True))
    return own + sum(child.user + child.system for child in children)


if __name__ == "__main__":
    main()
