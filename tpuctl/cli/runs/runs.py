"""The command runs."""

from __future__ import annotations

import click
from click.core import ParameterSource

from tpuctl import clock, durations
from tpuctl.cli import output
from tpuctl.cli.groups import Group
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.runs.upkeep.gc import gc
from tpuctl.cli.runs.upkeep.tag import notes_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.errors import UsageError
from tpuctl.flows.runs import consequences
from tpuctl.flows.runs.state import LABELS
from tpuctl.flows.runs.summaries import Page, Selection, Summary, take_page
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
@with_session
def runs(
    session: Session, states: tuple[str, ...], datasets: tuple[str, ...],
    since: int | None, limit: int, tags: tuple[str, ...],
) -> None:  # fmt: skip
    """List runs, the newest last: node, state, duration, cost, and how they ended.

    Times are by the bucket's clock. The cost is that of the node from the submission of the run to its end.

    \b
    Example:
      tpuctl runs
      tpuctl runs --state failed --since 7d
    """
    if click.get_current_context().invoked_subcommand:
        _check_unused(click.get_current_context())
        return
    conditions = [TagCondition.parse(tag) for tag in tags]
    selection = Selection(states, datasets, since, limit or None, conditions)
    page = take_page(
        session.cloud.bucket, session.witnesses, session.warn, selection, lambda tpu: session.prices.of(tpu)
    )
    session.listed.replace("runs", page.names[-MOST_NAMES:])
    if session.as_json:
        output.json({"runs": [_fields(run) for run in page.runs], "older": page.older})
        return
    _show(session, page, selection)


def _check_unused(ctx: click.Context) -> None:
    """Raise UsageError for an option of the list before another command."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(param for param in ctx.command.params if param.name == name).opts[0]
            raise UsageError(
                f"{option} is an option of the list, and not of 'tpuctl runs {ctx.invoked_subcommand}'.",
                hint=f"Options go behind the command: tpuctl runs {ctx.invoked_subcommand} --help",
            )


def _fields(run: Summary) -> dict[str, object]:
    return {
        "run": run.run, "created": run.created, "submitted": run.submitted, "ended": run.ended or None,
        "duration_seconds": round(run.seconds), "accelerator": run.accelerator, "node": run.node or None,
        "zone": run.zone or None, "dataset": run.dataset, "state": run.state, "exit_code": run.exit_code,
        "reason": run.reason, "cost": price_fields(run.cost), "submitter": run.submitter,
        "attempt": run.attempt or None, "steps_lost": run.steps_lost,
        **notes_fields(run.notes or Notes(run.run)),
    }  # fmt: skip


def _reason(run: Summary) -> str:
    """Return why a run did not succeed, and, where it was started again, which attempt it is."""
    reason = "" if run.state == SUCCEEDED else run.reason
    attempt = f"attempt {run.attempt}" if run.attempt > 1 else ""
    if run.steps_lost is not None:
        attempt += f", {run.steps_lost} steps lost"
    return ": ".join(filter(None, (attempt, reason)))


def _show(session: Session, page: Page, selection: Selection) -> None:
    now = session.cloud.bucket.now()
    has_tags = any(run.notes and run.notes.tags for run in page.runs)
    rows = [
        (
            run.run, run.node, run.accelerator, run.state, clock.age(run.submitted, now),
            durations.text(run.seconds) if run.node else "",
            run.total.short if run.node else "", run.dataset,
            "" if run.exit_code is None else run.exit_code,
            *([run.notes.labels if run.notes else ""] if has_tags else []),
            _reason(run),
        )
        for run in page.runs
    ]  # fmt: skip
    columns = ["RUN", "NODE", "TYPE", "STATE", "AGE", "DURATION", "COST", "DATASET", "EXIT", "REASON"]
    columns[-1:-1] = ["TAGS"] * has_tags
    output.table(columns, rows)
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
