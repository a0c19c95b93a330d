"""The command down."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import node_table
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.flows.nodes import down as flow
from tpuctl.nodes import Node


@click.command()
@click.argument("names", nargs=-1)
@yes_option
@dry_run_option
@with_session
def down(session: Session, names: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete TPUs, so that they stop billing: those named, or all that tpuctl created for you, in every zone.

    \b
    Example:
      tpuctl down
    """
    provider = session.cloud.provider
    nodes = flow.plan_down(provider, names, session.user)
    if dry_run:
        output.requests(flow.requests(provider, nodes), as_json=session.as_json)
        return
    if nodes:
        node_table(nodes, session.now, err=True)
        confirm(f"Delete {len(nodes)} node{'s' if len(nodes) > 1 else ''}?", yes=yes)
        with show_steps() as report:
            flow.down(provider, nodes, report)
    _show_deleted(session, nodes)


def _show_deleted(session: Session, nodes: Sequence[Node]) -> None:
    if session.as_json:
        output.json({"deleted": [node.name for node in nodes]})
    elif not nodes:
        output.note("You have no TPUs to delete.")
    else:
        output.note(f"Deleted {', '.join(node.name for node in nodes)}.")
