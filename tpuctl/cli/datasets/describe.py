"""The command data describe."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef


@click.command()
@ref_argument
@with_session
def describe(session: Session, ref: DatasetRef) -> None:
    """Show the fields, splits and source of a dataset (NAME, or NAME/VERSION).

    \b
    Example:
      tpuctl data describe digits
    """
    bucket = session.cloud.data_bucket
    manifest = steps.manifest(session.context, ref)
    if session.as_json:
        uri = manifest.ref.uri(bucket.name)
        output.json({"uri": uri, "digest": manifest.digest, "manifest": manifest})
    else:
        rendering.show_description(manifest, bucket.name)
        output.hint(f"tpuctl data head {ref}")
