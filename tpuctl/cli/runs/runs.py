"""The command runs.

- Defines the columns of `tpuctl runs`, and those that are shown unless --columns says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import click
from click.core import ParameterSource

from tpuctl import clock, durations
from tpuctl.cli import output
from tpuctl.cli.groups import Group
from tpuctl.cli.printing import price_fields
from tpuctl.cli.runs.upkeep import gc, notes_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.runs import steps
from tpuctl.errors import UsageError, nearest
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.metrics import METRICS, LatestMetrics, Metric, known_metrics
from tpuctl.flows.runs.state import LABELS
from tpuctl.flows.runs.summaries import WIDTH, Page, RunInfo, Selection, Summary
from tpuctl.parallel import fanout, values
from tpuctl.runs import SUCCEEDED
from tpuctl.upkeep import Notes, TagCondition

NONE = LatestMetrics()


@dataclass(frozen=True)
class Line:
    """What a line is made of."""

    summary: Summary
    now: datetime
    """By the bucket's clock."""
    metrics: LatestMetrics = NONE
    """Read only where a column shows one."""

    @property
    def run(self) -> RunInfo:
        """The run."""
        return self.summary.info

    @property
    def notes(self) -> Notes:
        """Its tags and notes."""
        return self.summary.notes or Notes(self.run.name)


def _metric_value(name: str) -> Callable[[Line], object]:
    def text(line: Line) -> str:
        metric = line.metrics.values.get(name)
        return metric.short if metric else ""

    return text


COLUMNS: dict[str, Callable[[Line], object]] = {
    "run": lambda line: line.run.name,
    "node": lambda line: line.run.node,
    "zone": lambda line: line.run.zone,
    "type": lambda line: f"{line.run.slices} x " * (line.run.slices > 1) + line.run.accelerator,
    "state": lambda line: line.run.state,
    "age": lambda line: clock.age(clock.iso(line.run.submitted), line.now),
    "submitted": lambda line: clock.iso(line.run.submitted),
    "ended": lambda line: clock.iso(line.run.ended) if line.run.ended else "",
    "duration": lambda line: durations.text(line.run.duration.total_seconds()) if line.run.node else "",
    "cost": lambda line: line.summary.total.short if line.run.node else "",
    "dataset": lambda line: line.run.dataset,
    "submitter": lambda line: line.run.submitter,
    "attempt": lambda line: line.run.attempt or "",
    **{name: _metric_value(name) for name in METRICS},
    "tags": lambda line: line.notes.labels,
    "note": lambda line: next((note.text for note in line.notes.notes[::-1]), ""),
    "exit": lambda line: "" if line.run.exit_code is None else line.run.exit_code,
    "reason": lambda line: reason(line.summary),
}
"""Name -> the text of a line; the heading is the name in capitals, `step_time` in milliseconds."""
HEADINGS = {"step_time": "STEP_TIME/MS"}
SHOWN = ("run", "node", "type", "state", "age", "duration", "cost", "dataset", "exit", "reason")


def shown(runs: Sequence[Summary]) -> tuple[str, ...]:
    """Return the columns that are shown of some runs unless the user chooses: tags where one has any."""
    has_tags = any(run.info.tags for run in runs)
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


def reason(summary: Summary) -> str:
    """Return why a run did not succeed, and, where it was started again, which attempt it is."""
    run = summary.info
    why = "" if run.state == SUCCEEDED else run.reason
    attempt = f"attempt {run.attempt}" if run.attempt > 1 else ""
    if summary.steps_lost is not None:
        attempt += f", {summary.steps_lost} steps lost"
    return ": ".join(filter(None, (attempt, why)))


NEWEST = 50
"""Runs that are shown unless --limit says otherwise."""
MOST_NAMES = 1000
"""Names that the shell's completion offers."""


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(LABELS),
    metavar="STATE",
    help=f"Only runs in this state; may be repeated: {', '.join(LABELS)}.",
)
@click.option("--dataset", "datasets", multiple=True, metavar="NAME[/VERSION]", help="Only runs that use it.")
@click.option(
    "--since", type=DURATION, metavar="DURATION", help="Only runs submitted since, such as 2h or 7d."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=NEWEST,
    show_default=True,
    metavar="N",
    help="The newest N runs; 0 for every run.",
)
@click.option("--tag", "tags", multiple=True, metavar="KEY[=VALUE]", help="Only runs with this tag.")
@click.option(
    "--columns", type=ColumnList(), metavar="COLUMN,...", help=f"Show these columns: {', '.join(COLUMNS)}."
)
@with_session
def runs(
    session: Session, states: tuple[str, ...], datasets: tuple[str, ...], since: int | None, limit: int,
    tags: tuple[str, ...], columns: tuple[str, ...] | None,
) -> None:  # fmt: skip
    """List runs, the newest last: node, state, duration, cost, and how they ended.

    Times are by the bucket's clock. The cost is an estimate for the time that the run used its TPUs. Loss,
    accuracy and step time are the last ones in the run's event files.

    \b
    Example:
      tpuctl runs
      tpuctl runs --state failed --since 7d
      tpuctl runs --columns state,cost,loss,accuracy,step_time
    """
    if click.get_current_context().invoked_subcommand:
        _check_unused(click.get_current_context())
        return
    conditions = [TagCondition.parse(tag) for tag in tags]
    selection = Selection(states, datasets, since, limit or None, conditions)
    page = steps.page(session, selection)
    columns = columns or shown(page.runs)
    lines = _lines(session, page, columns)
    session.listed.replace("runs", page.names[-MOST_NAMES:])
    if session.as_json:
        output.json({"runs": [_fields(line, columns) for line in lines], "older": page.older})
        return
    _show(session, page, selection, lines, columns)


def _check_unused(ctx: click.Context) -> None:
    """Raise UsageError for an option of the list before another command."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(param for param in ctx.command.params if param.name == name).opts[0]
            raise UsageError(
                f"{option} is an option of the list, and not of 'tpuctl runs {ctx.invoked_subcommand}'.",
                hint=f"Options go behind the command: tpuctl runs {ctx.invoked_subcommand} --help",
            )


def _fields(line: Line, columns: Sequence[str]) -> dict[str, object]:
    run, more = line.run, line.summary
    metrics = {name: _metric(line.metrics.values.get(name)) for name in METRICS if name in columns}
    return {
        "run": run.name, "created": more.created, "submitted": clock.iso(run.submitted),
        "ended": clock.iso(run.ended) if run.ended else None,
        "duration_seconds": round(run.duration.total_seconds()), "accelerator": run.accelerator,
        "slices": run.slices, "node": run.node or None,
        "zone": run.zone or None, "dataset": run.dataset, "state": run.state, "exit_code": run.exit_code,
        "reason": run.reason, "cost": price_fields(more.price), "submitter": run.submitter,
        "attempt": run.attempt or None, "steps_lost": more.steps_lost,
        "no_output_seconds": None if more.quiet is None else round(more.quiet),
        **notes_fields(line.notes),
        **({"metrics": metrics} if metrics else {}),
    }  # fmt: skip


def _metric(metric: Metric | None) -> dict[str, object] | None:
    """Return a metric; a value that is no number is text, such as "nan"."""
    if metric is None:
        return None
    value = metric.value if math.isfinite(metric.value) else str(metric.value)
    return {"value": value, "step": metric.step, "at": metric.at or None, "source": metric.source}


def _lines(session: Session, page: Page, columns: Sequence[str]) -> list[Line]:
    """Return the lines of a page, with metrics only where a column shows one."""
    bucket = session.cloud.bucket
    now = bucket.now()
    if not set(METRICS).intersection(columns):
        return [Line(run, now) for run in page.runs]
    metrics = values(fanout(lambda run: known_metrics(bucket, run.info.name), page.runs, width=WIDTH))
    for reason in dict.fromkeys(reason for item in metrics for reason in item.refused):
        session.warn(reason)
    return [Line(run, now, item) for run, item in zip(page.runs, metrics, strict=True)]


def _show(
    session: Session, page: Page, selection: Selection, lines: Sequence[Line], columns: Sequence[str]
) -> None:
    rows = [[COLUMNS[name](line) for name in columns] for line in lines]
    output.table(headings(columns), rows)
    if page.older:
        older = f"{page.older} older run{'s' * (page.older > 1)}"
        output.note(f"{older} not listed: 'tpuctl runs --limit 0' lists every run.")
    if not page.names:
        output.note(f"There are no runs in gs://{session.cloud.bucket.name}.")
        output.hint("tpuctl submit SCRIPT")
    elif not rows and selection.has_conditions:
        output.note("No run is like that.")
    elif rows and page.runs[-1].verdict and page.runs[-1].info.state != SUCCEEDED:
        output.hint(outcome.next_command(page.runs[-1].verdict))


runs.add_command(gc)
