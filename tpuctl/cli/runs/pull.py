"""The command pull."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.progress import resumable, show_transfer
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.client.runs import steps
from tpuctl.errors import UsageError
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs import pull as flow
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError
from tpuctl.flows.runs.local_copy import PARTS, Selection
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun

MOST_REASONS = 5
"""Checkpoints that are named one by one."""


class PartList(click.ParamType[frozenset[str]]):
    """Parts of a run, separated by commas."""

    name = "parts"

    def convert(
        self, value: str | frozenset[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        """Return the parts; fails for an unknown one."""
        if isinstance(value, frozenset):
            return value
        parts = frozenset(part.strip() for part in value.split(","))
        if unknown := sorted(parts.difference(PARTS)):
            self.fail(f"'{unknown[0]}' is none of {', '.join(PARTS)}.", param, ctx)
        return parts


@click.command()
@click.argument("run", required=False)
@click.option("--to", "folder", type=OUTPUT_PATH, help="Folder to write to. [default: the run's name]")
@click.option("--latest", is_flag=True, help="Of all checkpoints only those of the newest step.")
@click.option("--step", type=click.IntRange(min=0), help="Of all checkpoints only those of this step.")
@click.option("--only", type=PartList(), help=f"Parts of the run: {', '.join(PARTS)}, separated by commas.")
@click.option("--unfinished", is_flag=True, help="Also checkpoints that are not complete.")
@click.option("-f", "--follow", is_flag=True, help="Keep the folder current until the run ends.")
@with_session
def pull(
    session: Session,
    run: str | None,
    folder: Path | None,
    latest: bool,
    step: int | None,
    only: frozenset[str] | None,
    unfinished: bool,
    follow: bool,
) -> None:
    """Download a run's committed checkpoints, logs and records, and verify checksums.

    Without RUN, your own last one. What is here already is not fetched again. Objects whose names are not
    safe on a disk, such as hidden files and git repositories, are left out with a warning; the exit code is
    then 4.

    \b
    Example:
      tpuctl pull --to ./result
      tpuctl pull digits --latest --only checkpoints,logs
      tpuctl pull digits --follow
    """
    if latest and step is not None:
        raise UsageError("--latest and --step exclude each other.", hint="Name the step, or take the newest.")
    selection = Selection(PARTS if only is None else only, step, latest, unfinished)
    stored = steps.find(session, run)
    place = folder or Path(stored.name)
    problem = f"Interrupted: {place} has not all of run '{stored.name}'."
    with resumable(problem, "what has arrived is kept"), show_transfer() as (report, progress):
        result, state = steps.pull(session, stored, place, report, selection, progress, follow=follow)
    _finish(session, stored, result, state)


def _finish(session: Session, stored: StoredRun, result: flow.PullResult, state: RunState) -> None:
    """Show a copy; raises StateError if it is not complete."""
    for refusal in result.refused:
        session.warn(f"{refusal.name} {refusal.reason}: it is left out.")
    content = _pull_content(stored.name, result, ended=state.verdict is not None)
    if not session.as_json:
        _show(stored.name, result, state)
    elif not result.refused:
        output.json(content)
    if result.refused:
        error = flow.left_out(stored, result.refused)
        error.result = content
        raise error


def steps_of(checkpoints: Sequence[flow.Copied]) -> str:
    """Return which checkpoints there are, and their size, in one line."""
    steps = sorted({one.step for one in checkpoints if one.step is not None})
    size = output.format_bytes(sum(one.size for one in checkpoints))
    count = "1 checkpoint" if len(checkpoints) == 1 else f"{len(checkpoints)} checkpoints"
    named = ", ".join(map(str, steps)) if len(steps) <= MOST_REASONS else f"{steps[0]} to {steps[-1]}"
    return f"{count} ({size})" + (f", step {named}" if steps else "")


def _pull_content(run: str, result: flow.PullResult, *, ended: bool) -> dict[str, object]:
    return {
        "run": run,
        "folder": str(result.folder),
        "files": result.files,
        "bytes": result.size,
        "kept": result.unchanged,
        "uncommitted": list(result.uncommitted),
        "checkpoints": result.checkpoints,
        "unfinished": result.unfinished,
        "incomplete": result.incomplete,
        "refused": result.refused,
        "ended": ended,
    }


def _show(run: str, result: flow.PullResult, state: RunState) -> None:
    unchanged = f", {result.unchanged} of them unchanged" if result.unchanged else ""
    content: dict[str, object] = {
        "run": run,
        "files": f"{result.files} ({output.format_bytes(result.size)}), verified{unchanged}",
        "where": result.folder,
    }
    if result.checkpoints:
        content["checkpoints"] = steps_of(result.checkpoints)
    if result.uncommitted:
        content["skipped"] = f"{len(result.uncommitted)} files of unfinished checkpoints"
    output.facts(content)
    _name("Skipped", result.unfinished)
    _name("Not complete:", result.incomplete)
    verdict = state.verdict
    error = outcome.error_of(verdict) if verdict else None
    if state.error:
        output.note(f"Warning: {state.error.message} How run '{run}' ended is unknown.")
    elif state.sign:
        output.note(f"{RecordMissingError(state.sign).message} These are its files so far.")
        output.hint("tpuctl doctor")
    elif verdict is None:
        output.note(f"Run '{run}' is still running: these are its files so far.")
        output.hint(f"tpuctl logs -f {run}")
    elif error:
        output.note(error.message)
        output.hint(outcome.next_command(verdict))
    else:
        output.hint("tpuctl down")


def _name(what: str, checkpoints: Sequence[flow.Unfinished]) -> None:
    """Say of unfinished checkpoints why they are."""
    for checkpoint in checkpoints[:MOST_REASONS]:
        output.note(f"{what} {checkpoint.name} ({checkpoint.format}): {checkpoint.reason}.")
    if more := len(checkpoints[MOST_REASONS:]):
        output.note(f"{what} {more} more unfinished checkpoints.")
