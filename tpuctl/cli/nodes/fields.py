"""Builds the JSON form of nodes and queued resources."""

from __future__ import annotations

from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.session import Session
from tpuctl.flows.nodes.expiry import idle_limit
from tpuctl.flows.overview.node_runs import RunOnNode
from tpuctl.flows.overview.views import (
    Overview,
    bills,
    cost_so_far,
    expiry,
    waiting_reason,
)
from tpuctl.nodes import Node, QueuedResource


def node_fields(session: Session, overview: Overview, node: Node) -> dict[str, object]:
    """Return what is known of a node."""
    announced, run = overview.maintenance.get(node.id.uid), overview.workload.newest.get(node.id.uid)
    price = session.prices.of(node)
    cost = cost_so_far(node, price, session.now)
    return {
        "name": node.name,
        "project": node.id.project,
        "zone": node.zone,
        "accelerator": node.accelerator,
        "state": node.provider_state,
        "uid": node.id.uid,
        "health": node.health,
        "health_description": node.health_description,
        "symptoms": list(node.symptoms),
        "maintenance": announced,
        "notes": list(overview.troubles(node, session.now)),
        "run": run_fields(run) if run else None,
        "expires": expiry(node),
        "idle_seconds": idle_limit(node),
        "bills": bills(node),
        "price_per_hour": price_fields(price),
        "cost_so_far": price_fields(cost) if cost else None,
        "spot": node.spot,
        "runtime": node.runtime,
        "created": node.created,
        "owner": node.owner,
        "queued_resource": node.queued_resource,
        "addresses": list(node.addresses),
        "labels": dict(node.labels),
    }


def queue_fields(session: Session, queued: QueuedResource) -> dict[str, object]:
    """Return what is known of a queued resource."""
    return {
        "name": queued.name,
        "project": queued.id.project,
        "zone": queued.zone,
        "nodes": [node.name for node in queued.nodes],
        "accelerator": queued.accelerator,
        "state": queued.provider_state,
        "initiator": queued.initiator,
        "error": queued.error,
        "error_kind": queued.error_kind,
        "notes": list(waiting_reason(queued)),
        "expires": expiry(queued),
        "idle_seconds": idle_limit(queued),
        "price_per_hour": price_fields(session.prices.of(queued)),
        "spot": queued.spot,
        "reservation": queued.reservation,
        "runtime": queued.runtime,
        "created": queued.created,
        "valid_until": queued.valid_until,
        "owner": queued.owner,
        "labels": dict(queued.labels),
    }


def run_fields(run: RunOnNode) -> dict[str, object]:
    """Return a run that was started on a node."""
    return {"run": run.run, "attempt": run.attempt, "started": run.started, "state": run.state}
