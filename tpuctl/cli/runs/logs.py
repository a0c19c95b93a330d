"""The command logs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from tpuctl.bucket_objects import BadObjectError
from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.runs import logs as calls
from tpuctl.client.runs import steps
from tpuctl.errors import UsageError
from tpuctl.flows.remote.targets import parse_workers
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.logs.following import follow as follow_lines
from tpuctl.flows.runs.logs.reader import (
    Line,
    LogReader,
    hides_startup_lines,
    is_startup_line,
    may_have_startup_lines,
)
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import Verdict

Show = Callable[[Line], None]


class LogScreen:
    """Where one command shows the log of a run."""

    def __init__(
        self, *, as_json: bool, raw: bool, labels: bool, timestamps: bool, is_terminal: bool
    ) -> None:
        """Take `labels`, which says whether each line begins with its worker."""
        self._is_live = is_terminal and not (raw or as_json)
        self._as_json = as_json
        self._raw = raw
        self._labels = labels
        self._timestamps = timestamps
        self._has_live_line = False
        self._newest: dict[int, bytes] = {}

    def show(self, line: Line) -> None:
        """Show a line, or many that came as one."""
        self.clear()
        if self._raw:
            printing.write_bytes(line.data)
        elif self._as_json:
            time = {"time": line.time} if self._timestamps else {}
            output.json_line({"worker": line.worker, **time, "text": line.text})
        else:
            printing.write_log_lines(line.data, self._label(line), errors="replace")

    def show_unfinished(self, lines: Sequence[Line]) -> None:
        """Show the state of a line without an end, of the worker that printed last; only on a terminal."""
        if not self._is_live:
            return
        changed = [line for line in lines if self._newest.get(line.worker) != line.data]
        self._newest = {line.worker: line.data for line in lines}
        if changed:
            self.clear()
            newest = max(changed, key=lambda line: line.time)
            printing.write_live_line(newest.text, self._label(newest))
            self._has_live_line = True
        elif not lines:
            self.clear()

    def clear(self) -> None:
        """Remove the line without an end: something else is shown, or the log is over."""
        if self._has_live_line:
            printing.erase_live_line()
            self._newest = {}
        self._has_live_line = False

    def warner(self, warn: Callable[[str], None]) -> Callable[[str], None]:
        """Return what shows a warning on a line of its own."""

        def warn_below(text: str) -> None:
            self.clear()
            warn(text)

        return warn_below

    def _label(self, line: Line) -> str:
        time = f"{line.time} " if self._timestamps else ""
        return f"{time}[{line.worker}] " if self._labels else time


@click.command()
@click.argument("run", required=False)
@click.option(
    "--follow", "-f", is_flag=True, help="Follow the logs until the run ends; exit code 100 if it failed."
)
@click.option("--worker", metavar="WORKERS", help="Only these workers: 0, 1,3 or 0-7.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Begin with the lines of the last 10m, 2h.")
@click.option("--grep", "text", default="", metavar="TEXT", help="Only lines that have this text.")
@click.option("--timestamps", is_flag=True, help="Begin each line with the time when it reached the bucket.")
@click.option("--attempt", "number", type=click.IntRange(1, 9999), metavar="K", help="Of this attempt.")
@click.option("--verbose", is_flag=True, help="Also informational lines of TensorFlow's C++ code.")
@click.option("--raw", is_flag=True, help="Write the bytes as the script printed them, of all lines.")
@with_session
def logs(
    session: Session, run: str | None, follow: bool, worker: str | None, tail: int | None, since: int | None,
    text: str, timestamps: bool, number: int | None, verbose: bool, raw: bool,
) -> None:  # fmt: skip
    """Show the logs of a run (default: your last run), also after its TPU was deleted.

    With -f your own run is started again where it is lost, as by 'tpuctl watch'.
    Colours are shown on a terminal. Of a progress bar only the last state is shown, with -f on a terminal
    while it grows. Other control characters are shown as \\x1b.

    \b
    Example:
      tpuctl logs --tail 20
      tpuctl logs -f
      tpuctl logs r1 --worker 0-3 --since 10m --grep loss
    """
    if raw and (session.as_json or timestamps):
        other = "--json" if session.as_json else "--timestamps"
        raise UsageError(f"--raw and {other} are two forms of a log.", hint="Remove one of them.")
    stored = steps.find(session, run)
    attempt = steps.attempt_of(stored, number)
    hides = not (verbose or raw or session.as_json) and hides_startup_lines(stored.record)
    splits = None if session.as_json or text or tail is not None else _splits(hides=hides)
    reader = LogReader(attempt, _workers(worker, attempt), is_startup_line if hides else None, text, splits)
    screen = _screen(session, reader, raw=raw, timestamps=timestamps)
    reader.begin(tail, since)
    if follow and calls.is_newest(stored, reader):
        _end(_follow_with_restarts(session, stored, reader, screen, tail))
        return
    with printing.in_blocks():
        for line in calls.present_lines(reader, tail):
            screen.show(line)
    _note_hidden(reader.hidden)
    _note_end(session, stored)


def attach(session: Session, stored: StoredRun) -> None:
    """Show the log of a run that was just started until it ends, as 'tpuctl logs -f' does."""
    reader = _reader(session, stored)
    _end(_follow_with_restarts(session, stored, reader, _screen(session, reader)))


def follow_to_end(session: Session, stored: StoredRun) -> Verdict:
    """Show the log of a run until it ends, and return how it ended."""
    reader = _reader(session, stored)
    return _follow(session, stored, reader, _screen(session, reader))


def _reader(session: Session, stored: StoredRun) -> LogReader:
    hides = not session.as_json and hides_startup_lines(stored.record)
    splits = None if session.as_json else _splits(hides=hides)
    return LogReader(stored.last_readable_attempt(), None, is_startup_line if hides else None, "", splits)


def _splits(*, hides: bool) -> Callable[[bytes], bool]:
    """Return what says of many lines whether they have to be looked at one by one."""
    return may_have_startup_lines if hides else lambda lines: False


def _workers(text: str | None, attempt: StoredAttempt) -> list[int] | None:
    """Return the workers that are named; None for all. Raises UsageError for one that does not run it."""
    ranges = parse_workers(text).ranges if text else ()
    if not ranges:
        return None
    most = max(attempt.record.workers) + 1  # none is there: enough to be refused
    return [worker for first, final in ranges for worker in range(first, min(final, max(most, first)) + 1)]


def _screen(session: Session, reader: LogReader, *, raw: bool = False, timestamps: bool = False) -> LogScreen:
    return LogScreen(
        as_json=session.as_json,
        raw=raw,
        labels=len(reader.workers) > 1,
        timestamps=timestamps,
        is_terminal=sys.stdout.isatty(),
    )


def _follow_with_restarts(
    session: Session, stored: StoredRun, reader: LogReader, screen: LogScreen, tail: int | None = None
) -> Verdict:
    """Follow a run to its end, and start one's own again meanwhile, as 'tpuctl watch' does."""
    verdict = _follow(session, stored, reader, screen, tail)
    return _started_again(session, stored, reader, screen, verdict) if verdict.restarts else verdict


@printing.without_reader()
def _started_again(
    session: Session, stored: StoredRun, reader: LogReader, screen: LogScreen, verdict: Verdict
) -> Verdict:
    """Start one's own run again until an end is final; what was made for that is deleted then.

    Also where nobody reads the log any more: what was made would bill.
    """
    from tpuctl.cli.runs import watch  # only where a run is started again

    while watch.starts_again(session, stored, verdict):
        verdict = _follow(session, stored, reader, screen)
        if not verdict.restarts:
            watch.delete_what_was_made(session, stored)
            break
    return verdict


def _follow(
    session: Session, stored: StoredRun, reader: LogReader, screen: LogScreen, tail: int | None = None
) -> Verdict:
    stored.warn = screen.warner(session.warn)
    try:
        witnesses = session.witnesses
        verdict = follow_lines(
            stored, witnesses, reader, screen.show, tail, show_unfinished=screen.show_unfinished
        )
    finally:
        screen.clear()
    _note_hidden(reader.hidden)
    return verdict


def _end(verdict: Verdict) -> None:
    """Say how the run ended; raises the error of a run that did not succeed."""
    error = outcome.error_of(verdict)
    if error:
        raise error
    output.note(outcome.success_of(verdict))
    output.hint(outcome.next_command(verdict))


def _note_hidden(count: int) -> None:
    if count:
        lines = f"{count} informational line{'s' * (count > 1)} of TensorFlow's C++ code"
        output.note(f"Not shown: {lines} ('tpuctl logs --verbose' shows them).")


def _note_end(session: Session, stored: StoredRun) -> None:
    """Say after the log why a run did not succeed: its last lines may not."""
    try:
        verdict = stored.verdict()
    except BadObjectError as bad:
        session.warn(f"{bad.message} How the run ended is unknown.")
        return
    error = outcome.error_of(verdict) if verdict else None
    if error:
        output.note(error.message)
