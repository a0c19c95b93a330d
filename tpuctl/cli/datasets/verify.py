"""The command data verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest

_SHALLOW = "sizes and checksums compared; --deep also reads the records"


@click.command()
@ref_argument
@click.option("--deep", is_flag=True, help="Also read every record; takes as long as a download.")
@with_session
def verify(session: Session, ref: DatasetRef, deep: bool) -> None:
    """Check that every object of a dataset exists and matches the manifest.

    \b
    Example:
      tpuctl data verify digits --deep
    """
    manifest = steps.manifest(session.context, ref)
    with show_count("files checked") as report:
        steps.verify(session.context, manifest, report, deep=deep)
    _show_verified(session, manifest, deep=deep)


def _show_verified(session: Session, manifest: Manifest, *, deep: bool) -> None:
    if session.as_json:
        bucket = session.cloud.data_bucket.name
        output.json({**rendering.fields(manifest, bucket), "deep": deep, "ok": True})
        return
    extent = "every record was read" if deep else _SHALLOW
    printing.write(f"{manifest.ref} is complete: {rendering.sentence(manifest)} ({extent}).")
