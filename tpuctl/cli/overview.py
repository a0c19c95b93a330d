"""The commands ls, describe and why."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

import click

from tpuctl import clock
from tpuctl.cli import output, printing
from tpuctl.cli.nodes.table import note_unlisted, overview_fields, overview_table, show_overview
from tpuctl.cli.session import Session, with_session
from tpuctl.client.nodes import overview as calls
from tpuctl.client.nodes.overview import Description
from tpuctl.display import Fact
from tpuctl.errors import BucketMissingError, ConfigError, DeadlineError, NotFoundError, TpuctlError
from tpuctl.flows.nodes.lookup import Inventory
from tpuctl.flows.overview.story import Difference, Key, Snapshot, differences, snapshots, tell
from tpuctl.flows.overview.views import KeeperNotes, Overview
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError
from tpuctl.runs import NAME as RUN_NAME

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


@dataclass(frozen=True)
class _Part:
    """What one of the things of a name is."""

    facts: Sequence[Fact]
    command: str
    """The next command."""


@click.command()
@click.argument("name")
@with_session
def describe(session: Session, name: str) -> None:
    """Show everything that is known of a TPU or a run, and where each fact is from.

    Of a TPU from the Cloud TPU API, the bucket, price lists and the keeper on worker 0; of a run what was
    asked, and what its workers and its machine say. If both have the name, both are shown.

    \b
    Example:
      tpuctl describe ada-v3-8
      tpuctl describe digits-20261122-141617
    """
    described, missing = _tpu(session, name)
    run = _run(session, name, is_needed=described is None, missing=missing)
    tpu = _Part(described.facts, described.command) if described else None
    overview = described.overview if described else None
    if run and missing and not isinstance(missing, NotFoundError):
        output.note(f"Warning: whether there is a TPU '{name}' is unknown: {missing.message}")
    if session.as_json:
        fields = overview_fields(session, overview) | _fields(tpu) if overview and tpu else {}
        output.json({**fields, **({"run": {"name": name, **_fields(run)}} if run else {})})
        return
    for part in filter(None, (tpu, run)):
        output.table(("FACT", "VALUE", "FROM"), [(fact.name, fact.value, fact.source) for fact in part.facts])
    for silent in overview.inventory.unreachable if overview else ():
        output.note(f"Warning: no answer from {silent}: more of that name may be there, and bill.")
    for part in filter(None, (tpu, run)):
        output.hint(part.command)


def _fields(part: _Part | None) -> dict[str, object]:
    if part is None:
        return {}
    facts = [{"name": fact.name, "value": fact.value, "from": fact.source} for fact in part.facts]
    return {"facts": facts, "next": part.command}


def _tpu(session: Session, name: str) -> tuple[Description | None, TpuctlError | None]:
    """Return what is known of a TPU of this name, or why there is nothing: a run may have the name."""
    try:
        return calls.describe(session, name, session.from_flag("zone")), None
    except TpuctlError as error:
        return None, error


def _run(session: Session, name: str, *, is_needed: bool, missing: TpuctlError | None) -> _Part | None:
    """Return what is known of a run of this name.

    Raises the error of the TPU's look-up, which is `missing`, if there is neither.
    """
    from tpuctl.client.runs import steps
    from tpuctl.flows.runs import outcome
    from tpuctl.flows.runs.description import find_described
    from tpuctl.flows.runs.stored_run import StoredRun

    try:
        if not RUN_NAME.fullmatch(name):
            raise NotFoundError(f"There is no run '{name}'.")
        bucket = session.cloud.bucket
        stored = find_described(bucket, name)
        if stored is None:
            raise StoredRun(bucket, name).not_found()
        stored.warn = session.warn
        description = steps.describe(session, stored)
        facts = list(description.facts())
    except TpuctlError as error:
        if not is_needed:
            if not isinstance(error, (NotFoundError, ConfigError)):
                output.note(f"Warning: whether there is a run '{name}' is unknown: {error.message}")
            return None
        if not isinstance(missing, NotFoundError | None) and not isinstance(error, RecordMissingError):
            raise missing from error
        if missing is None or not isinstance(error, NotFoundError):
            raise  # nobody knows whether there is a run
        is_known = not isinstance(error, BucketMissingError)
        run = (
            "no run of that name." if is_known else f"whether there is such a run is unknown: {error.message}"
        )
        neither = f"There is no TPU '{name}', and {run}"
        raise NotFoundError(neither, hint=missing.hint) from error
    verdict = description.verdict
    return _Part(facts, outcome.next_command(verdict) if verdict else f"tpuctl logs {name} -f")


@click.command()
@click.argument("name")
@with_session
def why(session: Session, name: str) -> None:
    """Tell the story of a TPU: what was asked, what Google answered, what ran there, and what to do now.

    Also of one that is gone: Google keeps its operations for some days, the bucket keeps its runs.

    \b
    Example:
      tpuctl why ada-v3-8
    """
    zone = session.from_flag("zone")
    provider = session.cloud.provider
    story = tell(provider, lambda: session.cloud.bucket, name, zone, session.time, session.warn)
    if session.as_json:
        events = [{"at": event.at, "from": event.source, "text": event.text} for event in story.events]
        shown = {"name": name, "events": events, "now": story.now, "unknown": story.gaps}
        output.json({**shown, "hint": story.hint, "next": story.command})
        return
    rows = [(event.at, event.source, event.text) for event in story.events]
    output.table(("TIME", "FROM", "WHAT"), rows + [("now", "provider", sentence) for sentence in story.now])
    for gap in story.gaps:
        output.note(f"Warning: {gap}.".replace("..", "."))
    if story.hint:
        printing.show_command(story.hint, label="To do:", colour="")
    output.hint(story.command)
