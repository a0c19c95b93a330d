"""Commands for runs that have ended: tag, note, rm, runs gc.

- The command runs gc.
- The command rm, and what it shares with runs gc: the table, the question, and the result.
- The commands tag and note.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from tpuctl import clock, durations
from tpuctl.catalogue.bucket_rules import BucketRules
from tpuctl.cli import output, printing
from tpuctl.cli.printing import price_fields
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.cli.value_types import DURATION
from tpuctl.client.runs import steps
from tpuctl.client.runs import upkeep as calls
from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.upkeep import collection, removal
from tpuctl.flows.runs.upkeep.collection import Change, Collection, Rule, plan_collection
from tpuctl.flows.runs.upkeep.removal import RemovalPlan
from tpuctl.upkeep import Notes, TagChange

NEWEST = 20
"""Runs that are kept unless --keep says otherwise."""
MOST_REASONS = 5
"""Runs that stay whose reasons are shown."""


@click.command()
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=NEWEST,
    show_default=True,
    metavar="N",
    help="Keep the newest N runs.",
)
@click.option(
    "--older-than", "age", type=DURATION, metavar="DURATION", help="Only runs submitted before, such as 30d."
)
@click.option("--all-users", is_flag=True, help="Runs of everybody, not only yours.")
@yes_option
@dry_run_option
@with_session
def gc(session: Session, keep: int, age: int | None, all_users: bool, yes: bool, dry_run: bool) -> None:
    """Remove old runs of yours, as 'tpuctl rm' does: all but the newest, and those with the tag 'keep'.

    Runs that go on stay, and so do those of which nobody knows whether they do.

    \b
    Example:
      tpuctl tag digits-20260131-120000 keep
      tpuctl runs gc --keep 20 --older-than 30d
    """
    rule = Rule(keep, "" if all_users else session.owner, age or 0.0)
    cloud = session.cloud
    collection = plan_collection(
        cloud.bucket, session.witnesses, session.prices.of, rule, session.warn, is_rehearsal=dry_run
    )
    if dry_run:
        output.requests(removal.requests(cloud.bucket, collection.plans), as_json=session.as_json)
        return
    _note_others(collection)
    if not collection.plans:
        _show_nothing(session)
        return
    remove_all(session, collection.plans, yes=yes)
    output.hint("tpuctl runs")


def _note_others(collection: Collection) -> None:
    """Say which old runs stay, and why."""
    if collection.tagged:
        output.note(f"Kept by their tag: {', '.join(collection.tagged)}.")
    for error in collection.refused[:MOST_REASONS]:
        output.note(f"Kept: {error.message}")
    more = len(collection.refused) - MOST_REASONS
    if more > 0:
        output.note(f"Kept: {more} more that go on, or may.")


def _show_nothing(session: Session) -> None:
    if session.as_json:
        output.json({"removed": [], "bucket_keeps": None})
    else:
        output.note("There is no old run to remove.")
        output.hint("tpuctl runs")


@click.command()
@click.argument("run", nargs=-1, required=True)
@yes_option
@dry_run_option
@with_session
def rm(session: Session, run: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Remove runs from the bucket: records, logs, checkpoints and outputs. Datasets and code stay.

    A run that goes on is refused, and so is one of which nobody knows whether it does. If the command is
    interrupted, the same command completes it: what is left is no run any more.

    \b
    Example:
      tpuctl rm digits-20260131-120000
    """
    stored = [steps.named(session, name) for name in dict.fromkeys(run)]
    plans = calls.plan_removals(session, stored, is_rehearsal=dry_run)
    if dry_run:
        output.requests(removal.requests(session.cloud.bucket, plans), as_json=session.as_json)
        return
    remove_all(session, plans, yes=yes)
    output.hint("tpuctl runs")


def remove_all(session: Session, plans: Sequence[RemovalPlan], *, yes: bool) -> None:
    """Show runs, ask, remove them, and show the result."""
    if session.as_json or not yes:
        removal.read_all(plans)
    if not yes:
        show_plans(session, plans)
    confirm(f"Remove {_count(len(plans), 'run')}?", yes=yes)
    with show_steps() as report:
        counts = calls.remove(session, plans, report)
    session.listed.remove("runs", list(counts))
    _show_removed(session, plans, counts)


def show_plans(session: Session, plans: Sequence[RemovalPlan]) -> None:
    """Show on stderr what is to be removed."""
    now = session.cloud.bucket.now()
    rows = [
        (
            plan.run.name,
            plan.state,
            plan.submitter,
            clock.age(plan.submitted, now) if plan.submitted else "",
            len(plan.objects),
            output.format_bytes(plan.bytes),
            plan.cost.short if plan.cost.is_known else "",
            plan.notes.labels if plan.notes else "",
        )
        for plan in plans
    ]
    columns = ("RUN", "STATE", "SUBMITTER", "AGE", "OBJECTS", "SIZE", "COST", "TAGS")
    output.table(columns, rows, err=True)


def _show_removed(session: Session, plans: Sequence[RemovalPlan], counts: dict[str, int]) -> None:
    rules, bucket = _rules(session), session.cloud.bucket.name
    if session.as_json:
        removed = [
            {"run": plan.run.name, "state": plan.state, "objects": counts[plan.run.name], "bytes": plan.bytes,
             "cost": price_fields(plan.cost)}
            for plan in plans
        ]  # fmt: skip
        kept = {"versions": rules.has_versions, "seconds": rules.soft_delete_seconds} if rules else None
        output.json({"removed": removed, "bucket_keeps": kept})
        return
    size = output.format_bytes(sum(plan.bytes for plan in plans))
    names = ", ".join(plan.run.name for plan in plans)
    printing.write(f"Removed {names}: {_count(sum(counts.values()), 'object')}, {size}.")
    if rules and rules.has_versions:
        output.note(f"gs://{bucket} keeps older versions of objects, and they bill until they are deleted.")
    if rules and rules.soft_delete_seconds:
        period = durations.text(rules.soft_delete_seconds)
        output.note(f"gs://{bucket} keeps deleted objects for {period}, and they bill so long.")


def _rules(session: Session) -> BucketRules | None:
    """Return what the bucket keeps of what was deleted; None where this account may not see that."""
    try:
        return session.cloud.bucket.rules()
    except TpuctlError:
        return None


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


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
    change = collection.tagging(TagChange.parse(tags))
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
    change = calls.noting(session, steps.named(session, run), " ".join(text))
    _change(session, run, change, dry_run=dry_run)


def _change(session: Session, name: str, change: Change, *, dry_run: bool) -> None:
    run = steps.named(session, name)
    if dry_run:
        output.requests(collection.requests(run, change), as_json=session.as_json)
        return
    _show(session, collection.update(run, change))


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
