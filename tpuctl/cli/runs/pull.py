"""The command pull."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs import pull as flow
from tpuctl.flows.runs.lookup import find_run
from tpuctl.flows.runs.outcome import RunState, settle


@click.command()
@click.argument("run", required=False)
@click.option("--to", "folder", type=OUTPUT_PATH, help="Folder to write to. [default: the run's name]")
@with_session
def pull(session: Session, run: str | None, folder: Path | None) -> None:
    """Download a run's committed checkpoints, logs and records, and verify checksums.

    \b
    Example:
      tpuctl pull --to ./result
    """
    stored = find_run(session.cloud.bucket, run, session.warn)
    with show_steps() as report:
        state = settle(stored, session.cloud.provider, session.now)
        result = flow.pull(stored, folder or Path(stored.name), report)
    if session.as_json:
        _show_json(stored.name, result, ended=state.verdict is not None)
    else:
        _show(stored.name, result, state)


def _show_json(run: str, result: flow.PullResult, *, ended: bool) -> None:
    output.json({
        "run": run,
        "folder": str(result.folder),
        "files": result.files,
        "bytes": result.size,
        "kept": result.unchanged,
        "uncommitted": list(result.uncommitted),
        "ended": ended,
    })  # fmt: skip


def _show(run: str, result: flow.PullResult, state: RunState) -> None:
    unchanged = f", {result.unchanged} of them unchanged" if result.unchanged else ""
    content: dict[str, object] = {
        "run": run,
        "files": f"{result.files} ({output.format_bytes(result.size)}), verified{unchanged}",
        "where": result.folder,
    }
    if result.uncommitted:
        content["skipped"] = f"{len(result.uncommitted)} files of unfinished checkpoints"
    output.facts(content)
    verdict = state.verdict
    error = outcome.error_of(verdict) if verdict else None
    if state.error:
        output.note(f"Warning: {state.error.message} How run '{run}' ended is unknown.")
    elif verdict is None:
        output.note(f"Run '{run}' is still running: these are its files so far.")
        output.hint(f"tpuctl logs -f {run}")
    elif error:
        output.note(error.message)
        output.hint(outcome.next_command(verdict))
    else:
        output.hint("tpuctl down")
