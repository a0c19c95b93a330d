"""The command ls."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import show_overview
from tpuctl.cli.overview.watch import watch_overview
from tpuctl.cli.session import Session, with_session
from tpuctl.client.nodes import overview as calls
from tpuctl.flows.nodes.inventory import Inventory
from tpuctl.flows.overview.views import KeeperNotes, Overview


@click.command()
@click.option("--all-users", is_flag=True, help="List the TPUs of other users, too.")
@click.option("--watch", "-w", is_flag=True, help="Keep the list up to date, until Ctrl-C.")
@with_session
def ls(session: Session, all_users: bool, watch: bool) -> None:
    """List TPUs and queued requests for TPUs, in every zone or the one of --zone.

    Those that tpuctl created for other users are counted only, without --all-users. With --watch a terminal
    shows the list anew every few seconds; elsewhere each change is a line, with --json an object a line.

    \b
    Example:
      tpuctl ls --json
    """
    context, zone = session.context, session.from_flag("zone")
    keepers = KeeperNotes(context.cloud.provider)

    def take() -> tuple[Inventory, Overview]:
        overview = calls.every_overview(context, zone, keepers)
        return overview.inventory, overview if all_users else calls.own(context, overview)

    if watch:
        watch_overview(session, lambda: take()[1])
    inventory, overview = take()
    listed = overview.inventory
    if zone is None and not inventory.unreachable:
        session.listed.replace("nodes", (allocation.name for allocation in listed.allocations))
    show_overview(session, overview)
    _show_hidden(inventory, listed)
    if not inventory.allocations:
        _show_nothing(session, inventory, zone)


def _show_hidden(inventory: Inventory, listed: Inventory) -> None:
    hidden = [item for item in inventory.allocations if item not in listed.allocations]
    if hidden:
        owners = ", ".join(sorted({item.owner for item in hidden}))
        output.note(f"Not listed: {len(hidden)} of {owners}. 'tpuctl ls --all-users' lists them.")


def _show_nothing(session: Session, inventory: Inventory, zone: str | None) -> None:
    if not inventory.unreachable:
        project = session.config.require("project")
        output.note(f"There are no TPUs in {zone or 'any zone'} of project {project}.")
    output.hint("tpuctl up v3-8")
