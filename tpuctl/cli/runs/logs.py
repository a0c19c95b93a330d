"""The command logs."""

from __future__ import annotations

from collections.abc import Callable

import click

from tpuctl.cli import output
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.logs import Line, LogReader, last
from tpuctl.flows.runs.logs import follow as follow_run
from tpuctl.flows.runs.stored_run import find_run
from tpuctl.runs import Verdict


@click.command()
@click.argument("run", required=False)
@click.option(
    "--follow", "-f", is_flag=True, help="Follow the logs until the run ends; exit code 100 if it failed."
)
@click.option("--worker", type=click.IntRange(min=0), help="Only this worker.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@with_session
def logs(session: Session, run: str | None, follow: bool, worker: int | None, tail: int | None) -> None:
    """Show the logs of a run (default: the last run), also after its TPU was deleted.

    \b
    Example:
      tpuctl logs --tail 20
      tpuctl logs -f
    """
    stored = find_run(session.cloud.bucket, run)
    attempt = stored.last_attempt()
    reader = LogReader(attempt, worker)
    show = _printer(session, many=len(attempt.record.workers) > 1 and worker is None)
    if follow:
        _end(follow_run(stored, session.cloud.provider, reader, show, tail))
        return
    for line in last(reader.all_lines(), tail):
        show(line)
    _note_failure(stored.verdict())


def _printer(session: Session, *, many: bool) -> Callable[[Line], None]:
    if session.as_json:
        return lambda line: print(output.json_line({"worker": line.worker, "text": line.text}), flush=True)
    if many:
        return lambda line: print(f"[{line.worker}] {line.text}", flush=True)
    return lambda line: print(line.text, flush=True)


def _end(verdict: Verdict) -> None:
    """Say how the run ended; raises the error of a run that did not succeed."""
    error = outcome.error_of(verdict)
    if error:
        raise error
    output.note(f"Run '{verdict.run}' {verdict.outcome}.")
    output.hint(outcome.next_command(verdict))


def _note_failure(verdict: Verdict | None) -> None:
    """Say after the log why a run did not succeed: its last lines may not."""
    error = outcome.error_of(verdict) if verdict else None
    if error:
        output.note(error.message)
