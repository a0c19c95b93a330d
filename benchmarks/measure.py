"""Measuring commands as whole processes: in turn, so that a slow minute of the machine hits both sides."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One measurement: seconds of wall and CPU time, median of the runs, and the bound it should keep."""

    name: str
    wall: float
    cpu: float
    runs: int


@dataclass(frozen=True)
class Ratio:
    """One thing against another, run by run; `bound` says what we want of it."""

    name: str
    median: float
    lowest: float
    highest: float
    bound: str


def side_by_side(
    commands: Mapping[str, Sequence[str]], *, runs: int, environment: Mapping[str, str]
) -> dict[str, list[tuple[float, float]]]:
    """Run each command `runs` times in turn, after one that does not count; return (wall, CPU) seconds."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            one = _time(command, environment)
            if turn:
                taken[name].append(one)
    return taken


def rows(taken: Mapping[str, Sequence[tuple[float, float]]]) -> list[Row]:
    """Return the medians."""
    return [
        Row(
            name,
            statistics.median(wall for wall, _ in runs),
            statistics.median(cpu for _, cpu in runs),
            len(runs),
        )
        for name, runs in taken.items()
    ]


def ratio(
    name: str, above: Sequence[tuple[float, float]], below: Sequence[tuple[float, float]], bound: str
) -> Ratio:
    """Return how much more wall time `above` took than `below`, pair by pair."""
    pairs = [a[0] / b[0] for a, b in zip(above, below, strict=True)]
    return Ratio(name, statistics.median(pairs), min(pairs), max(pairs), bound)


def report(title: str, measured: Sequence[Row], ratios: Sequence[Ratio], notes: Sequence[str] = ()) -> None:
    """Print JSON on stdout and a table on stderr."""
    lines = [
        f"  {row.name:<48} {row.wall * 1000:8.0f} ms wall {row.cpu * 1000:8.0f} ms CPU" for row in measured
    ]
    for one in ratios:
        spread = f"{one.lowest:.2f} to {one.highest:.2f}"
        lines.append(f"  {one.name:<48} {one.median:8.2f} x   ({spread}; wanted: {one.bound})")
    content = {"rows": [asdict(row) for row in measured], "ratios": [asdict(one) for one in ratios]}
    show(title, content, lines, notes)


def show(title: str, content: Mapping[str, object], lines: Sequence[str], notes: Sequence[str]) -> None:
    """Print what was measured as JSON on stdout, and the lines of its table on stderr."""
    whole = {"schema": 1, "benchmark": title, **content, "notes": list(notes)}
    print(json.dumps(whole, indent=2), flush=True)
    print(f"\n{title}", *lines, *(f"  {note}" for note in notes), sep="\n", file=sys.stderr)


def _time(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu
