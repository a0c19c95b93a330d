"""The command logs."""

from __future__ import annotations

from collections.abc import Callable

import click

from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, with_session
from tpuctl.errors import UsageError
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.logs.following import follow as follow_run
from tpuctl.flows.runs.logs.reader import Line, LogReader, last
from tpuctl.flows.runs.logs.startup_lines import hides_startup_lines, is_startup_line
from tpuctl.flows.runs.lookup import find_run
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import Verdict


@click.command()
@click.argument("run", required=False)
@click.option(
    "--follow", "-f", is_flag=True, help="Follow the logs until the run ends; exit code 100 if it failed."
)
@click.option("--worker", type=click.IntRange(min=0), help="Only this worker.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option("--all", "everything", is_flag=True, help="Also informational lines of TensorFlow's C++ code.")
@click.option("--raw", is_flag=True, help="Write the bytes as the script printed them, of all lines.")
@with_session
def logs(
    session: Session, run: str | None, follow: bool, worker: int | None, tail: int | None, everything: bool,
    raw: bool,
) -> None:  # fmt: skip
    """Show the logs of a run (default: your last run), also after its TPU was deleted.

    Colours are shown on a terminal. Of a progress bar only the last state is shown. Other control characters
    are shown as \\x1b.

    \b
    Example:
      tpuctl logs --tail 20
      tpuctl logs -f
    """
    if raw and session.as_json:
        raise UsageError("--raw and --json are two forms of a log.", hint="Remove one of them.")
    stored = find_run(session.cloud.bucket, run, session.warn)
    hides = not (everything or raw or session.as_json) and hides_startup_lines(stored.record)
    reader = LogReader(stored.last_readable_attempt(), worker, is_startup_line if hides else None)
    show = _raw if raw else _printer(session, many=len(reader.workers) > 1)
    if follow:
        _follow(session, stored, reader, show, tail)
        return
    for line in last(reader.all_lines(), tail):
        show(line)
    _note_hidden(reader.hidden)
    _note_failure(session, stored)


def attach(session: Session, stored: StoredRun) -> None:
    """Show the log of a run that was just started until it ends, as 'tpuctl logs -f' does."""
    hides = not session.as_json and hides_startup_lines(stored.record)
    reader = LogReader(stored.last_readable_attempt(), None, is_startup_line if hides else None)
    _follow(session, stored, reader, _printer(session, many=len(reader.workers) > 1))


def _follow(
    session: Session, stored: StoredRun, reader: LogReader, show: Callable[[Line], None],
    tail: int | None = None,
) -> None:  # fmt: skip
    verdict = follow_run(stored, session.witnesses, reader, show, tail)
    _note_hidden(reader.hidden)
    _end(verdict)


def _printer(session: Session, *, many: bool) -> Callable[[Line], None]:
    if session.as_json:
        return lambda line: output.json_line({"worker": line.worker, "text": line.text})
    if many:
        return lambda line: printing.write_log_line(line.text, f"[{line.worker}] ")
    return lambda line: printing.write_log_line(line.text)


def _raw(line: Line) -> None:
    printing.write_bytes(line.data)


def _end(verdict: Verdict) -> None:
    """Say how the run ended; raises the error of a run that did not succeed."""
    error = outcome.error_of(verdict)
    if error:
        raise error
    output.note(f"Run '{verdict.run}' {verdict.outcome}.")
    output.hint(outcome.next_command(verdict))


def _note_hidden(count: int) -> None:
    if count:
        lines = f"{count} informational line{'s' * (count > 1)} of TensorFlow's C++ code"
        output.note(f"Not shown: {lines} ('tpuctl logs --all' shows them).")


def _note_failure(session: Session, stored: StoredRun) -> None:
    """Say after the log why a run did not succeed: its last lines may not."""
    try:
        verdict = stored.verdict()
    except BadObjectError as bad:
        session.warn(f"{bad.message} How the run ended is unknown.")
        return
    error = outcome.error_of(verdict) if verdict else None
    if error:
        output.note(error.message)
