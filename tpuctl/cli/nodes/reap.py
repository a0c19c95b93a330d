"""The command reap."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import UNKNOWN, runs_at_stake
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.cli.value_types import DURATION
from tpuctl.client.nodes.changes import note_preemptions, note_requests
from tpuctl.flows.nodes import reap as flow

COLUMNS = ("NAME", "ZONE", "OWNER", "RUN", "WHY")


@click.command()
@click.option(
    "--without-run", type=DURATION, metavar="DURATION",
    help="Also what is READY, older than DURATION, and has had no run of this bucket for so long.",
)  # fmt: skip
@click.option("--all-users", is_flag=True, help="Also the TPUs that tpuctl created for other users.")
@yes_option
@dry_run_option
@with_session
def reap(session: Session, without_run: int | None, all_users: bool, yes: bool, dry_run: bool) -> None:
    """Delete TPUs that nobody uses any more: those past their --ttl, preempted, suspended or failed.

    Of those that tpuctl created for you, in every zone or the one of --zone. Zones that do not answer are
    named at the end, with exit code 9: fit for cron with --yes.

    \b
    Example:
      tpuctl reap --yes
    """
    now = session.cloud.server_time()
    plan = _plan(session, now, without_run, all_users)
    provider = session.cloud.provider
    if dry_run:
        noting = note_requests(session.context, plan.allocations)
        output.requests([*noting, *flow.requests(provider, plan)], as_json=session.as_json)
        for silent in plan.unreachable:
            output.note(f"Warning: no answer from {silent}: what has expired there is not shown.")
        return
    if plan.allocations:
        _show(session, plan)
        count = len(plan.allocations)
        confirm(f"Delete {count} TPU{'s' if count > 1 else ''}?", yes=yes)
        if not yes:  # while the question waited, somebody may have extended one
            plan = _plan(session, session.cloud.server_time(), without_run, all_users).only(plan)
    note_preemptions(session.context, plan.allocations)
    names = [allocation.name for allocation in plan.allocations]
    with show_steps() as report:
        flow.reap(provider, plan, report)
    session.listed.remove("nodes", names)
    if session.as_json:
        output.json({"deleted": names})
    else:
        zone = session.from_flag("zone")
        nothing = f"There is nothing to reap{f' in {zone}' if zone else ''}."
        output.note(f"Deleted {', '.join(names)}." if names else nothing)


def _plan(session: Session, now: datetime, without_run: int | None, all_users: bool) -> flow.Reaping:
    disuse = None
    if without_run is not None:
        from tpuctl.flows.runs.used_nodes import Usage  # noqa: PLC0415  reads runs for this option alone

        age = timedelta(seconds=without_run)
        usage = Usage(session.cloud.bucket, session.witnesses, now, age, session.warn)
        disuse = flow.Disuse(usage.used, age)
    owner = None if all_users else session.owner
    return flow.plan_reap(session.cloud.provider, owner, now, session.from_flag("zone"), disuse)


def _show(session: Session, plan: flow.Reaping) -> None:
    runs = runs_at_stake(session, plan.allocations)
    rows = [
        (
            item.name, item.zone, item.owner or UNKNOWN,
            "; ".join(runs[node.id.uid] for node in item.nodes), reason,
        )
        for item, reason in zip(plan.allocations, plan.reasons, strict=True)
    ]  # fmt: skip
    output.table(COLUMNS, rows, err=True)
