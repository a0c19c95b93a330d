"""The group of the data commands; each is in a file of its own."""

from __future__ import annotations

import click

from tpuctl.cli.datasets.fetch import fetch
from tpuctl.cli.datasets.head import head
from tpuctl.cli.datasets.plan import plan
from tpuctl.cli.datasets.remove import rm
from tpuctl.cli.datasets.show import describe, list_, verify
from tpuctl.cli.datasets.upload import upload


@click.group()
def data() -> None:
    """Datasets: TFRecord shards in the bucket."""


for _command in (fetch, plan, upload, list_, describe, head, verify, rm):
    data.add_command(_command)
