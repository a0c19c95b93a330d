"""The command data pull."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.progress import resumable, show_transfer
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef


@click.command()
@ref_argument
@click.option("--to", "folder", type=OUTPUT_PATH, help="Folder to write to. [default: the dataset's name]")
@with_session
def pull(session: Session, ref: DatasetRef, folder: Path | None) -> None:
    """Download a dataset, and verify each file by the manifest.

    The folder can be read by tfds.builder_from_directory. What is here already is not fetched again.

    \b
    Example:
      tpuctl data pull digits --to ./digits-records
    """
    manifest = steps.manifest(session.context, ref)
    place = folder or Path(ref.name)
    with (
        resumable(f"Interrupted: {place} has not all of dataset {manifest.ref}.", "what has arrived is kept"),
        show_transfer() as (report, progress),
    ):
        copy = steps.pull(session.context, manifest, place, report, progress)
    if session.as_json:
        fields = {"files": copy.files, "bytes": copy.size, "kept": copy.unchanged}
        output.json({"dataset": str(manifest.ref), "folder": str(copy.folder), **fields})
        return
    unchanged = f", {copy.unchanged} of them unchanged" if copy.unchanged else ""
    files = f"{copy.files} ({output.format_bytes(copy.size)}), verified{unchanged}"
    output.facts({"dataset": str(manifest.ref), "files": files, "where": copy.folder})
    read = f"tfds.builder_from_directory({str(copy.folder)!r})"
    output.hint(shlex.join(["python", "-c", f"import tensorflow_datasets as tfds; print({read}.info)"]))
