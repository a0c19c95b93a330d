"""The command rm, and what it shares with runs gc: the table, the question, and the result."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tpuctl import clock, durations
from tpuctl.catalogue.bucket_rules import BucketRules
from tpuctl.cli import output, printing
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.client.runs import steps
from tpuctl.client.runs import upkeep as calls
from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.upkeep.removal import RemovalPlan


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
    context = session.context
    stored = [steps.named(context, name) for name in dict.fromkeys(run)]
    plans = calls.plan_removals(context, stored, is_rehearsal=dry_run)
    if dry_run:
        output.requests(calls.removal_requests(context, plans), as_json=session.as_json)
        return
    remove_all(session, plans, yes=yes)
    output.hint("tpuctl runs")


def remove_all(session: Session, plans: Sequence[RemovalPlan], *, yes: bool) -> None:
    """Show runs, ask, remove them, and show the result."""
    if session.as_json or not yes:
        calls.read_all(plans)
    if not yes:
        show_plans(session, plans)
    confirm(f"Remove {_count(len(plans), 'run')}?", yes=yes)
    with show_steps() as report:
        counts = calls.remove(session.context, plans, report)
    session.listed.remove("runs", list(counts))
    _show_removed(session, plans, counts)


def show_plans(session: Session, plans: Sequence[RemovalPlan]) -> None:
    """Show on stderr what is to be removed."""
    now = session.cloud.bucket.now()
    rows = [
        (
            plan.run.name, plan.state, plan.submitter,
            clock.age(plan.submitted, now) if plan.submitted else "",
            len(plan.objects), output.format_bytes(plan.bytes), plan.cost.short if plan.cost.is_known else "",
            plan.notes.labels if plan.notes else "",
        )
        for plan in plans
    ]  # fmt: skip
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
