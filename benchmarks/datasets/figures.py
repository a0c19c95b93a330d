"""The figures of benchmarks/datasets: times, ratios turn by turn, rates, CPU time, memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.datasets.processes import Usage
from benchmarks.measure import show

Turn = dict[str, Usage]
"""The usage of each way in one turn."""
Value = Callable[[Turn], float]


@dataclass(frozen=True)
class Figure:
    """One figure: the median over the turns, the spread, and the goal."""

    source: str
    name: str
    unit: str
    median: float
    lowest: float
    highest: float
    goal: str = ""


def figure(source: str, name: str, unit: str, values: Sequence[float], goal: str = "") -> Figure:
    """Return the median of some values, and the spread."""
    return Figure(source, name, unit, statistics.median(values), min(values), max(values), goal)


def figures(source: str, turns: Sequence[Turn], size: int) -> list[Figure]:
    """Return all figures of a source whose shards have `size` bytes."""
    copies = [name for name in ("gcloud storage cp", "transfer_manager") if name in turns[0]]
    usual, warm = ("usual script", copies[0]), "tpuctl, warm"
    prebuilt = "tpuctl / transfer_manager with prebuilt shards"
    rows: list[tuple[str, str, Value, str]] = [
        *((f"{name}: wall", "s", wall(name), "") for name in ("tpuctl", "usual script", *copies)),
        *((f"{name}: imports left out", "s", inside(name), "") for name in (warm, usual[0], copies[-1])),
        *(
            (f"usual way with {copy} / tpuctl: wall", "x", over(wall(usual[0], copy), wall("tpuctl")), goal)
            for copy, goal in zip(copies, ("4 at least", ""), strict=False)
        ),
        ("usual way with transfer_manager / tpuctl: imports left out", "x",
         over(inside(usual[0], copies[-1]), inside(warm)), "1.5 at least"),
        *(
            (f"{name}: rate, imports left out", "MB/s", over(lambda _: size / 1e6, inside(name)), "")
            for name in (warm, copies[-1])
        ),
        (f"{prebuilt}: rate, imports left out", "", over(inside(copies[-1]), inside(warm)), "0.7 at least"),
        (f"{prebuilt}: rate, imports included", "", over(wall(copies[-1]), wall("tpuctl")), ""),
        *(
            (f"{' + '.join(names)}: CPU a GB", "s", over(cpu(*names), lambda _: size / 1e9), "")
            for names in (("tpuctl",), usual, (copies[-1],))
        ),
        ("tpuctl: peak memory", "MB", lambda turn: turn["tpuctl"].memory, "400 at most"),
    ]  # fmt: skip
    return [
        figure(source, name, unit, [value(turn) for turn in turns], goal) for name, unit, value, goal in rows
    ]


def wall(*names: str) -> Value:
    """Return the seconds of these ways, one after the other."""
    return lambda turn: sum(turn[name].wall for name in names)


def inside(*names: str) -> Value:
    """Return the same, with start-up and imports left out."""
    return lambda turn: sum(turn[name].inside for name in names)


def cpu(*names: str) -> Value:
    """Return the seconds of CPU time."""
    return lambda turn: sum(turn[name].cpu for name in names)


def over(above: Value, below: Value) -> Value:
    """Return the ratio of two values of the same turn."""
    return lambda turn: above(turn) / below(turn)


def report(measured: Sequence[Figure], notes: Sequence[str]) -> None:
    """Print JSON on stdout and a table on stderr."""
    lines = []
    for row in measured:
        spread = f"({row.lowest:.2f} to {row.highest:.2f})" if row.highest > row.lowest else ""
        goal = f"goal: {row.goal}" if row.goal else ""
        line = f"  {row.source:<10} {row.name:<76} {row.median:8.2f} {row.unit:<4} {spread:<20} {goal}"
        lines.append(line.rstrip())
    show("datasets", {"figures": [asdict(row) for row in measured]}, lines, notes)
