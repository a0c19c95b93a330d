"""Deletes, stops, starts and extends TPUs: in two halves, a plan by reads alone, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.client.context import Context
from tpuctl.flows.nodes import down as down_flow
from tpuctl.flows.nodes import lifetime, power
from tpuctl.flows.nodes import up as wait_flow
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.evidence.witnesses import record_preemptions
from tpuctl.nodes import HttpRequest, Node, NodeState
from tpuctl.parallel import within

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


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


def plan_start(context: Context, name: str, zone: str | None) -> power.PowerPlan:
    """Return what a start of a node changes; raises StateError where its lifetime is over."""
    plan = power.plan_start(context.cloud.provider, name, zone)
    if plan.change:
        lifetime.require_time_left(plan.node, context.cloud.server_time)
    return plan


def start(context: Context, plan: power.PowerPlan, report: Report) -> Node:
    """Start a node as it is planned, and wait for SSH."""
    cloud = context.cloud
    return power.start(cloud.provider, cloud.ssh, plan, cloud.ssh.login_key(), report)


def plan_extension(context: Context, name: str, seconds: int, zone: str | None) -> lifetime.Extension:
    """Return the later end of a node's --ttl."""
    now: datetime = context.cloud.server_time()
    return lifetime.plan_extension(context.cloud.provider, name, seconds, now, zone)


def await_ready(context: Context, name: str, zone: str | None, seconds: float, report: Report) -> Allocation:
    """Return a TPU once it is READY and its hosts answer over SSH."""
    cloud = context.cloud
    key = cloud.ssh.login_key()
    return wait_flow.wait(cloud.provider, cloud.ssh, key, name, zone, seconds, report)
