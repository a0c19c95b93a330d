"""Reads the log of a run: what there is, or what comes until it ends."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from tpuctl.client.context import Context
from tpuctl.client.records import moment
from tpuctl.client.runs import steps
from tpuctl.client.runs.records import LogLine
from tpuctl.flows.runs.logs.following import new_lines
from tpuctl.flows.runs.logs.reader import Line, LogReader, last
from tpuctl.flows.runs.stored_run import StoredRun


def is_newest(run: StoredRun, reader: LogReader) -> bool:
    """Whether a reader is at the last attempt of a run: only that can be followed."""
    return reader.attempt.number == run.attempt_numbers()[-1]


def present_lines(reader: LogReader, tail: int | None) -> Iterator[Line]:
    """Yield the lines that there are, or the last `tail` of them."""
    return iter(last(reader.present_lines(), tail))


def log_lines(
    context: Context, run: StoredRun, *, follows: bool, workers: Sequence[int] | None, tail: int | None,
    since: float | None, text: str, number: int | None,
) -> Generator[LogLine, None, None]:  # fmt: skip
    """Yield the lines of an attempt's log; if `follows` is set, those to come until the run ends."""
    reader = LogReader(steps.attempt_of(run, number), workers, None, text)
    reader.begin(tail, since)
    lines: Iterator[Line] = present_lines(reader, tail)
    if follows and is_newest(run, reader):
        lines = new_lines(run, context.witnesses, reader, tail)
    for line in lines:
        yield LogLine(line.worker, moment(line.time), line.text)
