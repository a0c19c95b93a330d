"""The command reap.

- The command down.
- The commands stop and start.
- The command extend.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from tpuctl import clock, durations
from tpuctl.catalogue.totals import Total
from tpuctl.cli import output
from tpuctl.cli.nodes.table import UNKNOWN, allocation_table, runs_at_stake, show_nodes, show_restarts
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, reaching_options, with_session, yes_option
from tpuctl.cli.value_types import DURATION
from tpuctl.client.nodes import changes
from tpuctl.client.nodes.changes import note_preemptions, note_requests
from tpuctl.flows.nodes import lifetime, power
from tpuctl.flows.nodes import reap as flow
from tpuctl.flows.nodes.lookup import Allocation


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all TPUs that tpuctl created for you.")
@yes_option
@dry_run_option
@with_session
def down(session: Session, names: tuple[str, ...], everything: bool, yes: bool, dry_run: bool) -> None:
    """Delete TPUs, so that they stop billing: those named, or without a name your only one.

    In every zone, or in that of --zone. A queued resource is deleted with its nodes. The column RUN has what
    works on a TPU, since when, and its last checkpoint; ? where the bucket does not say.

    \b
    Example:
      tpuctl down
    """
    plan = changes.plan_down(session, names, session.from_flag("zone"), everything=everything)
    if dry_run:
        output.requests(changes.down_requests(session, plan), as_json=session.as_json)
        return
    count = len(plan.allocations)
    if count:
        runs = runs_at_stake(session, plan.allocations)
        allocation_table(plan.allocations, session.time, err=True, runs=runs)
        confirm(f"Delete {count} TPU{'s' if count > 1 else ''}?", yes=yes)
    with show_steps() as report:
        changes.down(session, plan, report)
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


@click.command()
@click.argument("node")
@yes_option
@dry_run_option
@with_session
def stop(session: Session, node: str, yes: bool, dry_run: bool) -> None:
    """Stop a TPU of one host: its programs end, its chips stop billing, and its disk stays and bills.

    A slice of several hosts, a spot TPU and one of a queued resource cannot be stopped, only deleted.

    \b
    Example:
      tpuctl stop my-tpu
    """
    plan = power.plan_stop(session.cloud.provider, node, session.from_flag("zone"))
    if dry_run:
        output.requests(power.stop_requests(session.cloud.provider, plan), as_json=session.as_json)
        return
    if plan.change:
        ended = [Allocation((plan.node,))]
        allocation_table(ended, session.time, err=True, runs=runs_at_stake(session, ended))
        output.note("Its programs end, and others may take its chips: it can fail to start again.")
        confirm(f"Stop {node}?", yes=yes)
    with show_steps() as report:
        stopped = power.stop(session.cloud.provider, plan, report)
    show_nodes(session, [stopped])
    output.note("Its chips do not bill while it is STOPPED; its boot disk does, and so do its data disks.")
    output.hint(f"tpuctl start {stopped.name}", stopped.deletion)


@click.command()
@click.argument("node")
@yes_option
@dry_run_option
@with_session
@reaching_options
def start(session: Session, node: str, yes: bool, dry_run: bool) -> None:
    """Start a stopped TPU, which bills again, and wait for SSH on its host.

    \b
    Example:
      tpuctl start my-tpu
    """
    plan = changes.plan_start(session, node, session.from_flag("zone"))
    if dry_run:
        requests = power.start_requests(session.cloud.provider, plan, session.cloud.ssh.login_key())
        output.requests(requests, as_json=session.as_json)
        return
    if plan.change:
        allocation_table([Allocation((plan.node,))], session.time, err=True)
        output.facts({"price per hour": str(session.prices.of(plan.node))}, err=True)
        confirm(f"Start {node}?", yes=yes)
    with show_steps() as report:
        started = changes.start(session, plan, report)
    show_nodes(session, [started])
    output.hint("tpuctl submit SCRIPT")


@click.command()
@click.argument("name")
@click.argument("duration", type=DURATION)
@dry_run_option
@with_session
def extend(session: Session, name: str, duration: int, dry_run: bool) -> None:
    """Move the end of a TPU's --ttl by a DURATION, such as 2h: after its present end, or after now.

    \b
    Example:
      tpuctl extend ada-v3-8 2h
    """
    extension = changes.plan_extension(session, name, duration, session.from_flag("zone"))
    if dry_run:
        output.requests(lifetime.requests(session.cloud.provider, extension), as_json=session.as_json)
        return
    with show_steps() as report:
        lifetime.extend(session.cloud.provider, extension, report)
    expires = clock.iso(extension.expires)
    if session.as_json:
        output.json({"name": name, "zone": extension.allocation.zone, "expires": expires})
    else:
        more = Total.of(session.prices.of(node).for_seconds(duration) for node in extension.allocation.nodes)
        output.note(f"{name} deletes itself {expires}; {durations.text(duration)} more cost {more.short}.")


COLUMNS = ("NAME", "ZONE", "OWNER", "RUN", "WHY")


@click.command()
@click.option(
    "--without-run",
    type=DURATION,
    metavar="DURATION",
    help="Also what is READY, older than DURATION, and has had no run of this bucket for so long.",
)
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
        noting = note_requests(session, plan.allocations)
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
    note_preemptions(session, plan.allocations)
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
        from tpuctl.flows.runs.lookup import Usage  # reads runs for this option alone

        age = timedelta(seconds=without_run)
        usage = Usage(session.cloud.bucket, session.witnesses, now, age, session.warn)
        disuse = flow.Disuse(usage.used, age)
    owner = None if all_users else session.owner
    return flow.plan_reap(session.cloud.provider, owner, now, session.from_flag("zone"), disuse)


def _show(session: Session, plan: flow.Reaping) -> None:
    runs = runs_at_stake(session, plan.allocations)
    rows = [
        (
            item.name,
            item.zone,
            item.owner or UNKNOWN,
            "; ".join(runs[node.id.uid] for node in item.nodes),
            reason,
        )
        for item, reason in zip(plan.allocations, plan.reasons, strict=True)
    ]
    output.table(COLUMNS, rows, err=True)
