"""The command wait."""

from __future__ import annotations

from math import inf

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import show_inventory
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, iap_option, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.flows.nodes import wait as flow
from tpuctl.flows.nodes.inventory import Inventory


@click.command()
@click.argument("name")
@click.option(
    "--timeout", type=DURATION, metavar="DURATION",
    help="Stop waiting for capacity after so long, such as 6h; the request stays.",
)  # fmt: skip
@with_session
@iap_option
def wait(session: Session, name: str, timeout: int | None) -> None:
    """Wait until a TPU is READY and its hosts answer over SSH, as after 'tpuctl up --detach'.

    \b
    Example:
      tpuctl wait n1 --timeout 6h
    """
    ssh = session.cloud.ssh
    with show_steps() as report:
        allocation = flow.wait(
            session.cloud.provider, ssh, ssh.login_key(), name, session.from_flag("zone"),
            inf if timeout is None else timeout, report,
        )  # fmt: skip
    show_inventory(session, Inventory((allocation,)))
    output.hint("tpuctl submit SCRIPT")
