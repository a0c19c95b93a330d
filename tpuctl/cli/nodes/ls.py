"""The command ls."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import show_nodes
from tpuctl.cli.session import Session, with_session


@click.command()
@with_session
def ls(session: Session) -> None:
    """List TPUs, in every zone or the one of --zone.

    \b
    Example:
      tpuctl ls --json
    """
    listing = session.cloud.provider.list_nodes(session.from_flag("zone"))
    show_nodes(session, listing.nodes, listing.unreachable)
    if not listing.nodes:
        output.hint("tpuctl up v3-8")
