"""Defines the columns of `tpuctl runs`, and those that are shown unless --columns says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from tpuctl import clock, durations
from tpuctl.errors import nearest
from tpuctl.flows.runs.metrics.latest import Metrics
from tpuctl.flows.runs.metrics.names import METRICS
from tpuctl.flows.runs.summaries import Summary
from tpuctl.runs import SUCCEEDED

NONE = Metrics()


@dataclass(frozen=True)
class Line:
    """What a line is made of."""

    run: Summary
    now: datetime
    """By the bucket's clock."""
    metrics: Metrics = NONE
    """Read only where a column shows one."""


def _metric_value(name: str) -> Callable[[Line], object]:
    def text(line: Line) -> str:
        metric = line.metrics.values.get(name)
        return metric.short if metric else ""

    return text


COLUMNS: dict[str, Callable[[Line], object]] = {
    "run": lambda line: line.run.run,
    "node": lambda line: line.run.node,
    "zone": lambda line: line.run.zone,
    "type": lambda line: f"{line.run.slices} x " * (line.run.slices > 1) + line.run.accelerator,
    "state": lambda line: line.run.state,
    "age": lambda line: clock.age(line.run.submitted, line.now),
    "submitted": lambda line: line.run.submitted,
    "ended": lambda line: line.run.ended,
    "duration": lambda line: durations.text(line.run.seconds) if line.run.node else "",
    "cost": lambda line: line.run.total.short if line.run.node else "",
    "dataset": lambda line: line.run.dataset,
    "submitter": lambda line: line.run.submitter,
    "attempt": lambda line: line.run.attempt or "",
    **{name: _metric_value(name) for name in METRICS},
    "tags": lambda line: line.run.notes.labels if line.run.notes else "",
    "note": lambda line: line.run.notes.notes[-1].text if line.run.notes and line.run.notes.notes else "",
    "exit": lambda line: "" if line.run.exit_code is None else line.run.exit_code,
    "reason": lambda line: reason(line.run),
}
"""Name -> the text of a line; the heading is the name in capitals, `step_time` in milliseconds."""
HEADINGS = {"step_time": "STEP_TIME/MS"}
SHOWN = ("run", "node", "type", "state", "age", "duration", "cost", "dataset", "exit", "reason")


def shown(runs: Sequence[Summary]) -> tuple[str, ...]:
    """Return the columns that are shown of some runs unless the user chooses: tags where one has any."""
    has_tags = any(run.notes and run.notes.tags for run in runs)
    return (*SHOWN[:-1], "tags", SHOWN[-1]) if has_tags else SHOWN


class ColumnList(click.ParamType[tuple[str, ...]]):
    """Names of columns, between commas; that of the run comes first where it is not named."""

    name = "columns"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names; fails for one that is no column."""
        if isinstance(value, tuple):
            return value
        names = [word.strip() for word in str(value).split(",")]
        for name in names:
            if name not in COLUMNS:
                close = nearest(name, list(COLUMNS))
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COLUMNS)}."
                self.fail(f"there is no column '{name}': {hint}", param, ctx)
        return tuple(dict.fromkeys(("run", *names) if "run" not in names else names))


def headings(columns: Sequence[str]) -> list[str]:
    """Return the headings of columns."""
    return [HEADINGS.get(name, name.upper()) for name in columns]


def reason(run: Summary) -> str:
    """Return why a run did not succeed, and, where it was started again, which attempt it is."""
    why = "" if run.state == SUCCEEDED else run.reason
    attempt = f"attempt {run.attempt}" if run.attempt > 1 else ""
    if run.steps_lost is not None:
        attempt += f", {run.steps_lost} steps lost"
    return ": ".join(filter(None, (attempt, why)))
