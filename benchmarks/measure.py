"""Measures commands as processes, in turn, so that a slow minute of the machine affects all of them."""

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
    """A measurement: median seconds of wall and CPU time, and the number of runs."""

    name: str
    wall: float
    cpu: float
    runs: int


@dataclass(frozen=True)
class Ratio:
    """The ratio of two measurements, run by run; `bound` is the target."""

    name: str
    median: float
    lowest: float
    highest: float
    bound: str


def side_by_side(
    commands: Mapping[str, Sequence[str]], *, runs: int, environment: Mapping[str, str], warm_up: bool = True
) -> dict[str, list[tuple[float, float]]]:
    """Run each command `runs` times in turn, after one warm-up; return (wall, CPU) seconds."""
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(0 if warm_up else 1, runs + 1):
        for name, command in commands.items():
            timing = _time(command, environment)
            if turn:
                timings[name].append(timing)
    return timings


def rows(timings: Mapping[str, Sequence[tuple[float, float]]]) -> list[Row]:
    """Return the medians by name."""
    return [
        Row(
            name,
            statistics.median(wall for wall, _ in runs),
            statistics.median(cpu for _, cpu in runs),
            len(runs),
        )
        for name, runs in timings.items()
    ]


def ratio(
    name: str, above: Sequence[tuple[float, float]], below: Sequence[tuple[float, float]], bound: str
) -> Ratio:
    """Return the ratio of the wall time of `above` to that of `below`, run by run."""
    pairs = [a[0] / b[0] for a, b in zip(above, below, strict=True)]
    return Ratio(name, statistics.median(pairs), min(pairs), max(pairs), bound)


def report(title: str, measured: Sequence[Row], ratios: Sequence[Ratio], notes: Sequence[str] = ()) -> None:
    """Print JSON on stdout and a table on stderr."""
    lines = [
        f"  {row.name:<48} {row.wall * 1000:8.0f} ms wall {row.cpu * 1000:8.0f} ms CPU" for row in measured
    ]
    for ratio in ratios:
        spread = f"{ratio.lowest:.2f} to {ratio.highest:.2f}"
        lines.append(f"  {ratio.name:<48} {ratio.median:8.2f} x   ({spread}; target: {ratio.bound})")
    content = {"rows": [asdict(row) for row in measured], "ratios": [asdict(ratio) for ratio in ratios]}
    show(title, content, lines, notes)


def show(title: str, content: Mapping[str, object], lines: Sequence[str], notes: Sequence[str]) -> None:
    """Print the measurements as JSON on stdout, and the lines of their table on stderr."""
    document = {"schema": 1, "benchmark": title, **content, "notes": list(notes)}
    print(json.dumps(document, indent=2), flush=True)
    print(f"\n{title}", *lines, *(f"  {note}" for note in notes), sep="\n", file=sys.stderr)


def _time(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{process.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu
