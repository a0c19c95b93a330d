"""The commands diff, verify and export: what the record of a run says, compared, checked and packed."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import LocalPath
from tpuctl.client.runs import steps
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError, TpuctlError, UsageError
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.record.comparison import MOST_SHOWN as MOST_LINES
from tpuctl.flows.runs.record.comparison import Comparison, Side, compare
from tpuctl.flows.runs.record.export import Export
from tpuctl.flows.runs.record.export import export as write_archive
from tpuctl.flows.runs.record.verification import MISSING, Difference, Verification
from tpuctl.flows.runs.record.verification import verify as check_folder
from tpuctl.flows.runs.state import RunState
from tpuctl.shells import quoted_path

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
        _show_comparison_json(sides, comparison)
    else:
        _show_comparison(sides, comparison)


def _side(session: Session, name: str) -> Side:
    run = steps.find(session, name)
    run.record  # noqa: B018  read for its error
    witnesses = session.witnesses
    return Side(run, settle(run, witnesses).verdict if run.attempt_numbers() else run.verdict())


def _show_comparison_json(sides: tuple[Side, Side], comparison: Comparison) -> None:
    output.json(
        {
            "runs": [side.run.name for side in sides],
            "equal": not comparison.differences,
            "differences": [
                {"part": each.part, "name": each.name, "first": each.first, "second": each.second}
                for each in comparison.differences
            ],
            "code": [{"file": file.name, "lines": list(file.lines)} for file in comparison.code],
            "same": comparison.same,
            "unknown": comparison.unknown,
        }
    )


def _show_comparison(sides: tuple[Side, Side], comparison: Comparison) -> None:
    first, second = (side.run.name for side in sides)
    if comparison.differences:
        output.table(("PART", "NAME", first, second), _rows(comparison))
        lines = [line for file in comparison.code for line in file.lines]
        for line in lines:
            printing.write_log_line(line)
        if len(lines) == MOST_LINES:
            output.note(f"The code differs in more than {MOST_LINES:,} lines.")
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


# The command verify.

MOST_SHOWN = 50
"""Differences that are shown."""


@click.command()
@click.argument("folder", type=LocalPath())
@click.option("--offline", is_flag=True, help="Do not ask the bucket.")
@click.option(
    "--partial", is_flag=True, help="Only a part was downloaded: files that are missing are no difference."
)
@with_session
def verify(session: Session, folder: Path, offline: bool, partial: bool) -> None:
    """Check whether a folder that 'tpuctl pull' has filled is the run that it says.

    Each result is compared with its checksum in results.json, and, if the bucket answers, each file with its
    object, the code with its hash, and the dataset with its digest. The exit code is 4 if something differs.

    \b
    Example:
      tpuctl verify digits-20260131-120000
      tpuctl verify ./result --offline
    """
    bucket, data_bucket, why_not = (None, None, "--offline") if offline else _buckets(session)
    result = check_folder(folder, bucket, data_bucket, why_not)
    differences = [one for one in result.differences if not (partial and one.kind == MISSING)]
    if session.as_json and not differences:
        output.json(_record_content(folder, result, differences))
    elif not session.as_json:
        _show_verification(folder, result, differences)
    if differences:
        raise _not_the_run(folder, result, differences)


def _buckets(session: Session) -> tuple[Bucket | None, Bucket | None, str]:
    """Return the buckets, or why they cannot be asked."""
    try:
        session.cloud.bucket.check()
    except TpuctlError as error:
        return None, None, error.message
    return session.cloud.bucket, session.cloud.data_bucket, ""


def _record_content(folder: Path, result: Verification, differences: list[Difference]) -> dict[str, object]:
    return {
        "run": result.run, "folder": str(folder), "outcome": result.outcome or None, "files": result.files,
        "same": not differences, "checks": list(result.checks), "differences": differences,
    }  # fmt: skip


def _show_verification(folder: Path, result: Verification, differences: list[Difference]) -> None:
    rows = [(check.subject, check.by or "not checked", check.detail) for check in result.checks]
    output.table(("CHECK", "BY", "DETAIL"), rows)
    if differences:
        shown = [(one.kind, one.name, one.detail) for one in differences[:MOST_SHOWN]]
        output.table(("DIFFERENCE", "FILE", "DETAIL"), shown)
        if more := len(differences) - len(shown):
            output.note(f"{more} more differences: 'tpuctl verify {folder} --json' lists all of them.")
        return
    output.note(f"{folder} is run '{result.run}', as far as it was checked.")
    output.hint(f"tpuctl export {result.run}")


def _not_the_run(folder: Path, result: Verification, differences: list[Difference]) -> StateError:
    count = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
    error = StateError(
        f"{folder} is not what the record of run '{result.run}' says: {count}.",
        hint=f"Download it again: tpuctl pull {result.run} --to ANOTHER_FOLDER",
    )
    error.result = _record_content(folder, result, differences)
    return error


# The command export.


@click.command()
@click.argument("run")
@click.option("--to", "path", type=LocalPath(), metavar="FILE", help="The archive; default: RUN.tar.gz.")
@click.option("--with-data", is_flag=True, help="Put the dataset into the archive.")
@with_session
def export(session: Session, run: str, path: Path | None, with_data: bool) -> None:
    """Write one archive of a run that somebody without your bucket can run.

    It has the code, the arguments, the versions of all packages, the checksums of the results, and a README
    with the commands. Values of variables and arguments that look like secrets are not in it. The same run
    gives the same bytes.

    \b
    Example:
      tpuctl export digits-20260131-120000 --to digits.tar.gz --with-data
    """
    stored = steps.find(session, run)
    place = path or Path(f"{stored.name}.tar.gz")
    if place.exists():
        raise UsageError(f"There is a file {place} already.", hint="Name another one: --to FILE")
    stored.record  # noqa: B018  read for its error
    verdict = _ended(stored.name, settle(stored, session.witnesses)).verdict
    assert verdict
    with show_steps() as report:
        written = write_archive(
            stored, verdict, session.cloud.data_bucket, place, report, with_data=with_data
        )
    _show_archive(session, stored.name, written)


def _ended(run: str, state: RunState) -> RunState:
    if state.error:
        raise state.error
    if state.verdict is None or state.verdict.restarts:
        raise StateError(f"Run '{run}' has not ended.", hint=f"tpuctl wait {run}", run=run)
    return state


def _show_archive(session: Session, run: str, written: Export) -> None:
    if session.as_json:
        output.json({
            "run": run, "file": str(written.path), "bytes": written.size, "sha256": written.sha256,
            "files": written.files, "has_data": written.has_data, "missing": list(written.missing),
        })  # fmt: skip
        return
    output.facts(
        {
            "run": run,
            "file": written.path,
            "size": f"{output.format_bytes(written.size)}, {written.files} files",
            "sha256": written.sha256,
        }
    )
    if written.missing:
        output.note(f"Not in it, and named in its README.md: {', '.join(written.missing)}.")
    output.hint(f"tar -xzf {quoted_path(str(written.path))} && less {run}/README.md")
