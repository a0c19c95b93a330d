"""The command describe."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import overview_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.overview.description import Fact, facts_of, find_overview, keeper_note
from tpuctl.flows.overview.views import Overview, next_command
from tpuctl.parallel import fanout


@click.command()
@click.argument("name")
@with_session
def describe(session: Session, name: str) -> None:
    """Show everything that is known of a TPU, and where each fact is from.

    From the Cloud TPU API, the bucket, price lists and the keeper on worker 0.

    \b
    Example:
      tpuctl describe ada-v3-8
    """
    provider = session.cloud.provider
    zone = session.from_flag("zone")
    overview = find_overview(provider, lambda: session.cloud.bucket, name, zone, session.warn)
    results = fanout(lambda node: keeper_note(provider, node), overview.inventory.nodes)
    notes = {result.item.id.uid: result.value for result in results}
    facts = [
        fact
        for allocation in overview.inventory.allocations
        for fact in facts_of(allocation, overview, session.prices, notes, session.now)
    ]
    _show(session, overview, facts)


def _show(session: Session, overview: Overview, facts: list[Fact]) -> None:
    first = overview.inventory.allocations[0]
    node = first.nodes[0] if first.nodes else None
    run = overview.workload.on(node) if node else None
    item = node or first.queued_resource
    command = next_command(item, run) if item else "tpuctl ls"
    if session.as_json:
        shown = [{"name": fact.name, "value": fact.value, "from": fact.source} for fact in facts]
        output.json({**overview_fields(session, overview), "facts": shown, "next": command})
        return
    output.table(("FACT", "VALUE", "FROM"), [(fact.name, fact.value, fact.source) for fact in facts])
    for silent in overview.inventory.unreachable:
        output.note(f"Warning: no answer from {silent}: more of that name may be there, and bill.")
    output.hint(command)
