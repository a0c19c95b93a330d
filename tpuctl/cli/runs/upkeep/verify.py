"""The command verify."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import LocalPath
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError, TpuctlError
from tpuctl.flows.runs.record import verification as flow
from tpuctl.flows.runs.record.verification import MISSING, Difference, Verification

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
    result = flow.verify(folder, bucket, data_bucket, why_not)
    differences = [one for one in result.differences if not (partial and one.kind == MISSING)]
    if session.as_json and not differences:
        output.json(_content(folder, result, differences))
    elif not session.as_json:
        _show(folder, result, differences)
    if differences:
        raise _error(folder, result, differences)


def _buckets(session: Session) -> tuple[Bucket | None, Bucket | None, str]:
    """Return the buckets, or why they cannot be asked."""
    try:
        session.cloud.bucket.check()
    except TpuctlError as error:
        return None, None, error.message
    return session.cloud.bucket, session.cloud.data_bucket, ""


def _content(folder: Path, result: Verification, differences: list[Difference]) -> dict[str, object]:
    return {
        "run": result.run, "folder": str(folder), "outcome": result.outcome or None, "files": result.files,
        "same": not differences, "checks": list(result.checks), "differences": differences,
    }  # fmt: skip


def _show(folder: Path, result: Verification, differences: list[Difference]) -> None:
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


def _error(folder: Path, result: Verification, differences: list[Difference]) -> StateError:
    count = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
    error = StateError(
        f"{folder} is not what the record of run '{result.run}' says: {count}.",
        hint=f"Download it again: tpuctl pull {result.run} --to ANOTHER_FOLDER",
    )
    error.result = _content(folder, result, differences)
    return error
