"""The command runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click
from click.core import ParameterSource

from tpuctl.cli import output
from tpuctl.cli.groups import Group
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.runs.listing.columns import COLUMNS, ColumnList, Line, headings, shown
from tpuctl.cli.runs.upkeep.gc import gc
from tpuctl.cli.runs.upkeep.tag import notes_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.runs import steps
from tpuctl.errors import UsageError
from tpuctl.flows.runs import consequences
from tpuctl.flows.runs.metrics.latest import Metric, known_metrics
from tpuctl.flows.runs.metrics.names import METRICS
from tpuctl.flows.runs.state import LABELS
from tpuctl.flows.runs.summaries import WIDTH, Page, Selection
from tpuctl.parallel import fanout, values
from tpuctl.runs import SUCCEEDED
from tpuctl.upkeep.notes import Notes, TagCondition

NEWEST = 50
"""Runs that are shown unless --limit says otherwise."""
MOST_NAMES = 1000
"""Names that the shell's completion offers."""


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--state", "states", multiple=True, type=click.Choice(LABELS), metavar="STATE",
    help=f"Only runs in this state; may be repeated: {', '.join(LABELS)}.",
)  # fmt: skip
@click.option("--dataset", "datasets", multiple=True, metavar="NAME[/VERSION]", help="Only runs that use it.")
@click.option(
    "--since", type=DURATION, metavar="DURATION", help="Only runs submitted since, such as 2h or 7d."
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=NEWEST, show_default=True, metavar="N",
    help="The newest N runs; 0 for every run.",
)  # fmt: skip
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
    page = steps.page(session.context, selection)
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
    run = line.run
    metrics = {name: _metric(line.metrics.values.get(name)) for name in METRICS if name in columns}
    return {
        "run": run.run, "created": run.created, "submitted": run.submitted, "ended": run.ended or None,
        "duration_seconds": round(run.seconds), "accelerator": run.accelerator, "slices": run.slices,
        "node": run.node or None,
        "zone": run.zone or None, "dataset": run.dataset, "state": run.state, "exit_code": run.exit_code,
        "reason": run.reason, "cost": price_fields(run.cost), "submitter": run.submitter,
        "attempt": run.attempt or None, "steps_lost": run.steps_lost,
        "no_output_seconds": None if run.quiet is None else round(run.quiet),
        **notes_fields(run.notes or Notes(run.run)),
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
    metrics = values(fanout(lambda run: known_metrics(bucket, run.run), page.runs, width=WIDTH))
    for reason in dict.fromkeys(reason for item in metrics for reason in item.refused):
        session.warn(reason)
    return [Line(run, now, item) for run, item in zip(page.runs, metrics, strict=True)]


def _show(
    session: Session, page: Page, selection: Selection, lines: Sequence[Line], columns: Sequence[str]
) -> None:  # fmt: skip
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
    elif rows and page.runs[-1].verdict and page.runs[-1].state != SUCCEEDED:
        output.hint(consequences.next_command(page.runs[-1].verdict))


runs.add_command(gc)
