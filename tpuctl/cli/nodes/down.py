"""The command down."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import allocation_table, runs_at_stake, show_restarts
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.client.nodes import changes
from tpuctl.flows.nodes.inventory import Allocation


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all TPUs that tpuctl created for you.")
@yes_option
@dry_run_option
@with_session
def down(
    session: Session, names: tuple[str, ...], everything: bool, yes: bool, dry_run: bool
) -> None:  # fmt: skip
    """Delete TPUs, so that they stop billing: those named, or without a name your only one.

    In every zone, or in that of --zone. A queued resource is deleted with its nodes. The column RUN has what
    works on a TPU, since when, and its last checkpoint; ? where the bucket does not say.

    \b
    Example:
      tpuctl down
    """
    context = session.context
    plan = changes.plan_down(context, names, session.from_flag("zone"), everything=everything)
    if dry_run:
        output.requests(changes.down_requests(context, plan), as_json=session.as_json)
        return
    count = len(plan.allocations)
    if count:
        runs = runs_at_stake(session, plan.allocations)
        allocation_table(plan.allocations, session.now, err=True, runs=runs)
        confirm(f"Delete {count} TPU{'s' if count > 1 else ''}?", yes=yes)
    with show_steps() as report:
        changes.down(context, plan, report)
    session.listed.remove("nodes", (allocation.name for allocation in plan.allocations))
    _show_deleted(session, plan.allocations, plan.zone)
    if everything:
        show_restarts(session)


def _show_deleted(session: Session, allocations: Sequence[Allocation], zone: str) -> None:
    names = [allocation.name for allocation in allocations]
    if session.as_json:
        output.json({"deleted": names})
    else:
        output.note(
            f"Deleted {', '.join(names)}."
            if names
            else f"You have no TPUs to delete{f' in {zone}' if zone else ''}."
        )
