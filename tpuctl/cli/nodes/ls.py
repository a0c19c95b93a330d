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
    session.config.get("zone")  # a malformed one is an error, also where every zone is listed
    zone = session.from_flag("zone")
    listing = session.cloud.provider.list_nodes(zone)
    show_nodes(session, listing.nodes, listing.unreachable)
    if listing.nodes:
        return
    if not listing.unreachable:
        project = session.config.require("project")
        output.note(f"There are no TPUs in {zone or 'any zone'} of project {project}.")
    output.hint("tpuctl up v3-8")
