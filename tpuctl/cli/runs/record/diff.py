"""The command diff."""

from __future__ import annotations

import click

from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, with_session
from tpuctl.client.runs import steps
from tpuctl.flows.runs.record.comparison import MOST_SHOWN, Comparison, Side, compare

MOST_ROWS = 40
"""Differences of one part in the table; --json has all."""


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@with_session
def diff(session: Session, first: str, second: str) -> None:
    """Show in what two runs differ: code, arguments, packages, data, machine, seeds and results.

    All is from the bucket. Results are compared by their checksums, but for TensorBoard's files, which have
    the time in them. Whether the runs differ or not, the exit code is 0; --json has it in "equal".

    \b
    Example:
      tpuctl diff digits-20260131-120000 digits-20260131-130000
    """
    sides = _side(session, first), _side(session, second)
    comparison = compare(*sides)
    if session.as_json:
        _show_json(sides, comparison)
    else:
        _show(sides, comparison)


def _side(session: Session, name: str) -> Side:
    run = steps.find(session.context, name)
    run.record  # noqa: B018  read for its error
    return Side(run, steps.state(session.context, run).verdict if run.attempt_numbers() else run.verdict())


def _show_json(sides: tuple[Side, Side], comparison: Comparison) -> None:
    output.json({
        "runs": [side.run.name for side in sides],
        "equal": not comparison.differences,
        "differences": [
            {"part": each.part, "name": each.name, "first": each.first, "second": each.second}
            for each in comparison.differences
        ],
        "code": [{"file": file.name, "lines": list(file.lines)} for file in comparison.code],
        "same": comparison.same,
        "unknown": comparison.unknown,
    })  # fmt: skip


def _show(sides: tuple[Side, Side], comparison: Comparison) -> None:
    first, second = (side.run.name for side in sides)
    if comparison.differences:
        output.table(("PART", "NAME", first, second), _rows(comparison))
        lines = [line for file in comparison.code for line in file.lines]
        for line in lines:
            printing.write_log_line(line)
        if len(lines) == MOST_SHOWN:
            output.note(f"The code differs in more than {MOST_SHOWN:,} lines.")
        if comparison.same:
            output.note(f"The same: {', '.join(comparison.same)}.")
    else:
        printing.write(f"{first} and {second} do not differ in anything that is recorded.")
    for text in comparison.unknown:
        output.note(text)
    output.hint(f"tpuctl describe {second}")


def _rows(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    rows, counts = [], dict[str, int]()
    for each in comparison.differences:
        counts[each.part] = counts.get(each.part, 0) + 1
        if counts[each.part] <= MOST_ROWS:
            rows.append((each.part, each.name, _cell(each.first), _cell(each.second)))
    for part, count in counts.items():
        if count > MOST_ROWS:
            rows.append((part, f"and {count - MOST_ROWS} more", "", ""))
    return rows


def _cell(value: str | None) -> str:
    return "-" if value is None else value or '""'
