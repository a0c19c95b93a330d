"""The command runs gc."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.runs.upkeep.rm import remove_all
from tpuctl.cli.session import Session, dry_run_option, with_session, yes_option
from tpuctl.cli.value_types import DURATION
from tpuctl.flows.runs.upkeep import removal
from tpuctl.flows.runs.upkeep.collection import Collection, Rule, plan_collection

NEWEST = 20
"""Runs that are kept unless --keep says otherwise."""
MOST_REASONS = 5
"""Runs that stay whose reasons are shown."""


@click.command()
@click.option(
    "--keep", type=click.IntRange(min=0), default=NEWEST, show_default=True, metavar="N",
    help="Keep the newest N runs.",
)  # fmt: skip
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
