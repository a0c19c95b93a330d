"""Lists TPUs with what is known of them, and puts that into records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl.client.context import Context
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.overview.views import (
    KeeperNotes,
    Overview,
    bills,
    cost_so_far,
    expiry,
    next_command,
    take_overview,
)
from tpuctl.nodes import Node, QueuedResource, QueueState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpuctl.client.nodes.records import NodeInfo
    from tpuctl.display import Fact
    from tpuctl.display.listing import Listing

COLUMNS: Mapping[str, Callable[[NodeInfo], object]] = {
    "name": lambda node: node.name,
    "zone": lambda node: node.zone,
    "type": lambda node: node.accelerator,
    "hosts": lambda node: node.hosts or "",
    "state": lambda node: node.state,
    "spot": lambda node: "yes" if node.spot else "",
    "owner": lambda node: node.owner,
    "run": lambda node: node.run,
    "price per hour": lambda node: node.price_per_hour,
    "notes": lambda node: "; ".join(node.notes),
}


def every_overview(context: Context, zone: str | None, keepers: KeeperNotes | None = None) -> Overview:
    """Return what is known of every TPU, in a zone or in all; `keepers` for who asks again and again."""
    context.config.get("zone")  # a malformed one is an error, also where every zone is listed
    cloud = context.cloud
    return take_overview(cloud.provider, lambda: cloud.bucket, zone, context.warn, keepers)


def own(context: Context, overview: Overview) -> Overview:
    """Return an overview without what tpuctl created for other people."""
    return replace(overview, inventory=overview.inventory.without_others(context.owner))


def find(context: Context, name: str, zone: str | None) -> Overview:
    """Return what is known of the TPU of a name; raises NotFoundError."""
    from tpuctl.flows.overview.description import find_overview  # not needed by ls

    cloud = context.cloud
    return find_overview(cloud.provider, lambda: cloud.bucket, name, zone, context.warn)


@dataclass(frozen=True)
class Description:
    """All that is known of the TPU of a name."""

    overview: Overview
    facts: Sequence[Fact]
    command: str
    """The next command that its user needs."""


def describe(context: Context, name: str, zone: str | None) -> Description:
    """Return all that is known of the TPU of a name, also by the keeper on its first host."""
    from tpuctl.flows.overview.description import facts_of  # not needed by ls

    seen = find(context, name, zone)
    allocations, now = seen.inventory.allocations, context.now()
    facts = [fact for item in allocations for fact in facts_of(item, seen, context.prices, now)]
    node = allocations[0].nodes[0] if allocations[0].nodes else None
    item = node or allocations[0].queued_resource
    run = seen.workload.on(node) if node else None
    return Description(seen, facts, next_command(item, run) if item else "tpuctl ls")


def records_of(context: Context, overview: Overview) -> list[NodeInfo]:
    """Return the record of each node, and of each queued resource that is not ACTIVE."""
    now, allocations = context.now(), overview.inventory.allocations
    return [record for item in allocations for record in _records(context, overview, item, now)]


def listing(context: Context, overview: Overview) -> Listing[NodeInfo]:
    """Return the same, to be shown as a table."""
    from tpuctl.display.listing import Listing  # for Python alone

    return Listing(records_of(context, overview), "nodes", COLUMNS)


def _records(context: Context, overview: Overview, item: Allocation, now: datetime) -> Iterator[NodeInfo]:
    queued = item.queued_resource
    if queued and queued.state is not QueueState.ACTIVE:
        yield _record(context, overview, queued, now)
    yield from (_record(context, overview, node, now) for node in item.nodes)


def _record(context: Context, overview: Overview, item: Node | QueuedResource, now: datetime) -> NodeInfo:
    from tpuctl.client.nodes.records import NodeInfo  # for Python alone
    from tpuctl.client.records import moment
    from tpuctl.display import cost_of

    price = context.prices.of(item)
    node = item if isinstance(item, Node) else None
    run = overview.workload.on(node) if node else None
    cost = cost_so_far(item, price, now)
    return NodeInfo(
        name=item.name,
        zone=item.zone,
        project=item.id.project,
        accelerator=item.accelerator,
        hosts=len(node.addresses) if node else 0,
        state=item.provider_state,
        spot=item.spot,
        runtime=item.runtime,
        created=moment(item.created),
        owner=item.owner,
        run=run.run if run else "",
        expires=moment(expiry(item)),
        price_per_hour=cost_of(price),
        cost_so_far=cost_of(cost) if cost else None,
        bills=bills(item),
        addresses=tuple(node.addresses) if node else (),
        labels=dict(item.labels),
        queued_resource=node.queued_resource if node else item.name,
        notes=tuple(overview.troubles(item, now)),
    )
