"""Lists TPUs with what is known of them, and puts that into records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.client.context import Context
from tpuctl.flows.nodes import down as down_flow
from tpuctl.flows.nodes import lifetime, power
from tpuctl.flows.nodes import up as wait_flow
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
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.evidence.witnesses import record_preemptions
from tpuctl.nodes import HttpRequest, Node, NodeState, QueuedResource, QueueState
from tpuctl.parallel import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpuctl.client.nodes.records import NodeInfo
    from tpuctl.cloud.storage import Bucket
    from tpuctl.display.listing import Listing
    from tpuctl.flows.facts import Fact


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
    from tpuctl.flows.overview.description import find_overview  # noqa: PLC0415  not needed by ls

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
    from tpuctl.flows.overview.description import facts_of  # noqa: PLC0415  not needed by ls

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
    from tpuctl.display.listing import Listing  # noqa: PLC0415  for Python alone

    return Listing(records_of(context, overview), "nodes", COLUMNS)


def _records(context: Context, overview: Overview, item: Allocation, now: datetime) -> Iterator[NodeInfo]:
    queued = item.queued_resource
    if queued and queued.state is not QueueState.ACTIVE:
        yield _record(context, overview, queued, now)
    yield from (_record(context, overview, node, now) for node in item.nodes)


def _record(context: Context, overview: Overview, item: Node | QueuedResource, now: datetime) -> NodeInfo:
    from tpuctl.client.nodes.records import NodeInfo  # noqa: PLC0415  for Python alone
    from tpuctl.client.records import Cost, moment  # noqa: PLC0415

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
        price_per_hour=Cost._of(price),
        cost_so_far=Cost._of(cost) if cost else None,
        bills=bills(item),
        addresses=tuple(node.addresses) if node else (),
        labels=dict(item.labels),
        queued_resource=node.queued_resource if node else item.name,
        notes=tuple(overview.troubles(item, now)),
    )


def plan_down(
    context: Context, names: Sequence[str], zone: str | None, *, everything: bool = False
) -> down_flow.DownPlan:
    """Return what is deleted: what is named, else this user's only TPU, or all of them."""
    return down_flow.plan_down(context.cloud.provider, names, context.owner, zone, everything=everything)


def down_requests(context: Context, plan: down_flow.DownPlan) -> list[HttpRequest]:
    """Return what `down` would send."""
    noting = note_requests(context, plan.allocations)
    return [*noting, *down_flow.requests(context.cloud.provider, plan)]


def down(context: Context, plan: down_flow.DownPlan, report: Report) -> None:
    """Delete what is planned."""
    note_preemptions(context, plan.allocations)
    down_flow.down(context.cloud.provider, plan, report)


def note_preemptions(context: Context, allocations: Iterable[Allocation]) -> None:
    """Record of TPUs that are to be deleted which of them Google has taken back: it is how their runs ended.

    A bucket that does not take it within seconds keeps nobody from deleting.
    """
    lost = _lost(context, allocations)
    if lost:
        within(lambda: _note(context, context.cloud.bucket, lost))


def note_requests(context: Context, allocations: Iterable[Allocation]) -> list[HttpRequest]:
    """Return what `note_preemptions` would send."""
    lost = _lost(context, allocations)
    if not lost:
        return []
    rehearsal = context.cloud.bucket.dry_run()
    _note(context, rehearsal, lost)
    return rehearsal.requests


def _lost(context: Context, allocations: Iterable[Allocation]) -> list[Node]:
    bucket = context.config.get("bucket")
    nodes = [node for item in allocations for node in item.nodes if bucket and node.is_recorded_in(bucket)]
    return [node for node in nodes if node.state is NodeState.PREEMPTED]


def _note(context: Context, bucket: Bucket, lost: Sequence[Node]) -> None:
    record_preemptions(bucket, lost, clock.iso(context.cloud.server_time()))


def plan_stop(context: Context, name: str, zone: str | None) -> power.PowerPlan:
    """Return what a stop of a node changes."""
    return power.plan_stop(context.cloud.provider, name, zone)


def stop_requests(context: Context, plan: power.PowerPlan) -> list[HttpRequest]:
    """Return what `stop` would send."""
    return power.stop_requests(context.cloud.provider, plan)


def stop(context: Context, plan: power.PowerPlan, report: Report) -> Node:
    """Stop a node as it is planned."""
    return power.stop(context.cloud.provider, plan, report)


def plan_start(context: Context, name: str, zone: str | None) -> power.PowerPlan:
    """Return what a start of a node changes; raises StateError where its lifetime is over."""
    plan = power.plan_start(context.cloud.provider, name, zone)
    if plan.change:
        lifetime.require_time_left(plan.node, context.cloud.server_time)
    return plan


def start_requests(context: Context, plan: power.PowerPlan) -> list[HttpRequest]:
    """Return what `start` would send."""
    cloud = context.cloud
    return power.start_requests(cloud.provider, plan, cloud.ssh.login_key())


def start(context: Context, plan: power.PowerPlan, report: Report) -> Node:
    """Start a node as it is planned, and wait for SSH."""
    cloud = context.cloud
    return power.start(cloud.provider, cloud.ssh, plan, cloud.ssh.login_key(), report)


def plan_extension(context: Context, name: str, seconds: int, zone: str | None) -> lifetime.Extension:
    """Return the later end of a node's --ttl."""
    now: datetime = context.cloud.server_time()
    return lifetime.plan_extension(context.cloud.provider, name, seconds, now, zone)


def extension_requests(context: Context, plan: lifetime.Extension) -> list[HttpRequest]:
    """Return what `extend` would send."""
    return lifetime.requests(context.cloud.provider, plan)


def extend(context: Context, plan: lifetime.Extension, report: Report) -> None:
    """Move the end of a node's --ttl as it is planned."""
    lifetime.extend(context.cloud.provider, plan, report)


def await_ready(
    context: Context, name: str, zone: str | None, seconds: float, report: Report
) -> Allocation:  # fmt: skip
    """Return a TPU once it is READY and its hosts answer over SSH."""
    cloud = context.cloud
    key = cloud.ssh.login_key()
    return wait_flow.wait(cloud.provider, cloud.ssh, key, name, zone, seconds, report)
