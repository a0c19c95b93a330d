"""The command data verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, with_session
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets.lookup import read_manifest

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
    from tpuctl.flows.datasets import verify as flow  # noqa: PLC0415  NumPy: not for the other commands

    bucket = session.cloud.data_bucket
    manifest = read_manifest(bucket, ref, session.warn)
    with show_count("files checked") as report:
        flow.verify(bucket, manifest, deep=deep, report=report)
    _show_verified(session, manifest, deep=deep)


def _show_verified(session: Session, manifest: Manifest, *, deep: bool) -> None:
    if session.as_json:
        bucket = session.cloud.data_bucket.name
        output.json({**rendering.fields(manifest, bucket), "deep": deep, "ok": True})
        return
    extent = "every record was read" if deep else _SHALLOW
    printing.write(f"{manifest.ref} is complete: {rendering.sentence(manifest)} ({extent}).")
