"""Shows TPUs until Ctrl-C: the whole list anew on a terminal, else a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from tpuctl import clock
from tpuctl.cli import output, printing
from tpuctl.cli.nodes.table import note_unlisted, overview_table
from tpuctl.cli.session import Session
from tpuctl.errors import DeadlineError
from tpuctl.flows.overview.changes import Difference, Key, Snapshot, differences, snapshots
from tpuctl.flows.overview.views import Overview

INTERVAL = 5.0
"""Seconds between two looks."""


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
