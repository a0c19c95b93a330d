"""The commands tag and note."""

from __future__ import annotations

import click

from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.client.runs import steps
from tpuctl.client.runs import upkeep as calls
from tpuctl.flows.runs.upkeep.notes import Change
from tpuctl.upkeep.notes import Notes


@click.command()
@click.argument("run")
@click.argument("tags", nargs=-1, metavar="KEY[=VALUE]|KEY-...")
@dry_run_option
@with_session
def tag(session: Session, run: str, tags: tuple[str, ...], dry_run: bool) -> None:
    """Set tags of a run, or remove them (KEY-); without any, show them.

    'tpuctl runs --tag KEY=VALUE' lists the runs with a tag. 'tpuctl runs gc' keeps runs with the tag 'keep'.

    \b
    Example:
      tpuctl tag digits-20260131-120000 keep paper=figure-3
      tpuctl tag digits-20260131-120000 paper-
    """
    change = calls.tagging(tags)
    _change(session, run, change, dry_run=dry_run)


@click.command()
@click.argument("run")
@click.argument("text", nargs=-1, required=True)
@dry_run_option
@with_session
def note(session: Session, run: str, text: tuple[str, ...], dry_run: bool) -> None:
    """Write a note about a run, which 'tpuctl describe' shows; everybody may add one.

    \b
    Example:
      tpuctl note digits-20260131-120000 "the rate was too high: see run digits-2"
    """
    change = calls.noting(session.context, steps.named(session.context, run), " ".join(text))
    _change(session, run, change, dry_run=dry_run)


def _change(session: Session, name: str, change: Change, *, dry_run: bool) -> None:
    run = steps.named(session.context, name)
    if dry_run:
        output.requests(calls.change_requests(run, change), as_json=session.as_json)
        return
    _show(session, calls.update(run, change))


def _show(session: Session, notes: Notes) -> None:
    if session.as_json:
        output.json({"run": notes.run, **notes_fields(notes)})
        return
    for key, value in sorted(notes.tags.items()):
        printing.write(f"{key}={value}" if value else key)
    for entry in notes.notes:
        output.hanging(f"{entry.at} {entry.by}", entry.text)
    if not notes.tags and not notes.notes:
        output.note(f"Run '{notes.run}' has no tags.")
        output.hint(f"tpuctl tag {notes.run} KEY=VALUE")
    else:
        output.hint(f"tpuctl describe {notes.run}")


def notes_fields(notes: Notes) -> dict[str, object]:
    """Return tags and notes, for programs."""
    entries = [{"text": entry.text, "by": entry.by, "at": entry.at} for entry in notes.notes]
    return {"tags": notes.tags, "notes": entries}
