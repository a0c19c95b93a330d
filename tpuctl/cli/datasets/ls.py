"""The command data ls."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.datasets import rendering
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps


@click.command()
@with_session
def ls(session: Session) -> None:
    """List the datasets in the bucket.

    \b
    Example:
      tpuctl data ls
    """
    bucket = session.cloud.data_bucket
    manifests = steps.manifests(session.context)
    session.listed.replace("datasets", (name for item in manifests for name in (item.name, str(item.ref))))
    if session.as_json:
        output.json({"datasets": [rendering.fields(manifest, bucket.name) for manifest in manifests]})
    else:
        output.table(rendering.COLUMNS, map(rendering.row, manifests))
        if not manifests:
            output.note(f"There are no datasets in gs://{bucket.name}.")
            output.hint("tpuctl data upload NAME SOURCE")
