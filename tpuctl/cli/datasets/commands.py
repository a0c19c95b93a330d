"""Groups the data commands; each has its own module."""

from __future__ import annotations

import click

from tpuctl.cli.datasets.analysis.diff import diff
from tpuctl.cli.datasets.analysis.sample import sample
from tpuctl.cli.datasets.analysis.split import split
from tpuctl.cli.datasets.analysis.stats import stats
from tpuctl.cli.datasets.dataflow import dataflow
from tpuctl.cli.datasets.describe import describe
from tpuctl.cli.datasets.fetch import fetch
from tpuctl.cli.datasets.head import head
from tpuctl.cli.datasets.ls import ls
from tpuctl.cli.datasets.plan import plan
from tpuctl.cli.datasets.pull import pull
from tpuctl.cli.datasets.rm import rm
from tpuctl.cli.datasets.upload import upload
from tpuctl.cli.datasets.verify import verify
from tpuctl.cli.groups import Group


@click.group(cls=Group)
def data() -> None:
    """Upload, list, check and remove datasets: TFRecord shards in the bucket."""


for _command in (
    fetch,
    plan,
    upload,
    dataflow,
    ls,
    describe,
    head,
    stats,
    diff,
    split,
    sample,
    verify,
    pull,
    rm,
):
    data.add_command(_command)
