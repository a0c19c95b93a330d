"""The command ls."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

import click

from tpuctl import clock
from tpuctl.cli import output, printing
from tpuctl.cli.nodes.table import note_unlisted, overview_table, show_overview
from tpuctl.cli.session import Session, with_session
from tpuctl.client.nodes import overview as calls
from tpuctl.errors import DeadlineError
from tpuctl.flows.nodes.lookup import Inventory
from tpuctl.flows.overview.story import Difference, Key, Snapshot, differences, snapshots
from tpuctl.flows.overview.views import KeeperNotes, Overview

INTERVAL = 5.0
"""Seconds between two looks."""


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
    zone = session.from_flag("zone")
    keepers = KeeperNotes(session.cloud.provider)

    def take() -> tuple[Inventory, Overview]:
        overview = calls.every_overview(session, zone, keepers)
        return overview.inventory, overview if all_users else calls.own(session, overview)

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


# Shows TPUs until Ctrl-C: the whole list anew on a terminal, else a line for each change.


def watch_overview(session: Session, take: Callable[[], Overview]) -> NoReturn:
    """Show what `take` returns, again and again; a look that gets no answer is said, and another follows."""
    before: dict[Key, Snapshot] = {}
    silence = ""
    while True:
        try:
            overview, now = take(), session.cloud.server_time()
        except DeadlineError as error:
            if error.message != silence:
                output.note(f"Warning: {error.message}")
            silence = error.message
        else:
            silence = ""
            if sys.stdout.isatty() and not session.as_json:
                _redraw(session, overview, now)
            else:
                for difference in differences(before, overview, now):
                    _show_line(session, difference, clock.iso(now))
            before = _remembered(before, overview) | snapshots(overview, now)
        time.sleep(INTERVAL)


def _redraw(session: Session, overview: Overview, now: datetime) -> None:
    printing.clear_screen()
    output.note(f"Every {INTERVAL:.0f} s until Ctrl-C; {clock.iso(now)}")
    overview_table(session, overview, now)
    note_unlisted(overview.inventory)


def _show_line(session: Session, difference: Difference, at: str) -> None:
    if session.as_json:
        output.json_line({"at": at, "was": difference.was, "now": difference.now})
    else:
        printing.write_at_once(f"{at}  {difference.line}")


def _remembered(before: dict[Key, Snapshot], overview: Overview) -> dict[Key, Snapshot]:
    """What silent zones showed before: their TPUs are not gone."""
    silent = overview.inventory.unreachable
    return {key: former for key, former in before.items() if former.zone in silent}
