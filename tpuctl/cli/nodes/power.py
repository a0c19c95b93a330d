"""The commands stop and start."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import allocation_table, runs_at_stake, show_nodes
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, reaching_options, with_session, yes_option
from tpuctl.client.nodes import changes
from tpuctl.flows.nodes.inventory import Allocation


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
    context = session.context
    plan = changes.plan_stop(context, node, session.from_flag("zone"))
    if dry_run:
        output.requests(changes.stop_requests(context, plan), as_json=session.as_json)
        return
    if plan.change:
        ended = [Allocation((plan.node,))]
        allocation_table(ended, session.now, err=True, runs=runs_at_stake(session, ended))
        output.note("Its programs end, and others may take its chips: it can fail to start again.")
        confirm(f"Stop {node}?", yes=yes)
    with show_steps() as report:
        stopped = changes.stop(context, plan, report)
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
    context = session.context
    plan = changes.plan_start(context, node, session.from_flag("zone"))
    if dry_run:
        output.requests(changes.start_requests(context, plan), as_json=session.as_json)
        return
    if plan.change:
        allocation_table([Allocation((plan.node,))], session.now, err=True)
        output.facts({"price per hour": str(session.prices.of(plan.node))}, err=True)
        confirm(f"Start {node}?", yes=yes)
    with show_steps() as report:
        started = changes.start(context, plan, report)
    show_nodes(session, [started])
    output.hint("tpuctl submit SCRIPT")
