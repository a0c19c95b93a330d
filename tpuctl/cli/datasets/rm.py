"""The command data rm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef
from tpuctl.flows.runs.lookup import readers_of
from tpuctl.parallel import within

if TYPE_CHECKING:
    from tpuctl.flows.datasets.rm import Removal


@click.command()
@ref_argument
@yes_option
@dry_run_option
@with_session
def rm(session: Session, ref: DatasetRef, yes: bool, dry_run: bool) -> None:
    """Remove a version of a dataset (NAME/VERSION), or the objects of an unfinished upload.

    Without a version, the dataset must have only one. Runs that used it keep their records.

    \b
    Example:
      tpuctl data rm digits/1.0.0
    """
    bucket = session.cloud.data_bucket
    removal = steps.plan_removal(session.context, ref)
    if dry_run:
        output.requests(steps.removal_requests(session.context, removal), as_json=session.as_json)
        return
    readers = within(lambda: readers_of(session.cloud.bucket, bucket.name, removal.ref))
    for run in readers.value or ():
        output.note(f"Warning: run '{run}' has not ended for good, and reads {removal.ref}.")
    _confirm(removal, bucket.name, yes=yes)
    steps.remove(session.context, removal)
    session.listed.remove("datasets", [str(removal.ref)])
    _show_removed(session, removal)


def _confirm(removal: Removal, bucket: str, *, yes: bool) -> None:
    manifest = removal.manifest
    if not yes:
        contents = (
            rendering.count_of_records(manifest.records)
            if manifest
            else "no dataset: objects of an unfinished upload"
        )
        facts = {
            "remove": removal.ref,
            "holds": contents,
            "objects": f"{len(removal.objects)} ({output.format_bytes(removal.bytes)})",
            "where": removal.ref.uri(bucket),
        }
        output.facts(facts, err=True)
    confirm(f"Remove {removal.ref}?", yes=yes)


def _show_removed(session: Session, removal: Removal) -> None:
    count = len(removal.objects)
    if session.as_json:
        uri = removal.ref.uri(session.cloud.data_bucket.name)
        output.json({"removed": str(removal.ref), "objects": count, "uri": uri})
        return
    printing.write(f"Removed {removal.ref}: {count} objects.")
