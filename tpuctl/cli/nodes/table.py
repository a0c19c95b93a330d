"""Prints nodes and queued resources as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tpuctl import clock
from tpuctl.cli import output
from tpuctl.cli.session import Session
from tpuctl.flows.nodes.inventory import Allocation, Inventory
from tpuctl.nodes import Node, QueuedResource, QueueState

COLUMNS = ("NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE", "OWNER")
UNKNOWN = "-"


def show_inventory(session: Session, inventory: Inventory) -> None:
    """Print what there is, and the zones that did not answer, as the user asked: as a table or as JSON."""
    if session.as_json:
        queue = [item.queued_resource for item in inventory.allocations if item.queued_resource]
        output.json(
            {
                "nodes": [_fields(node) for node in inventory.nodes],
                "queued_resources": [_queue_fields(queued) for queued in queue],
                "unreachable": list(inventory.unreachable),
            }
        )
        return
    allocation_table(inventory.allocations, session.now)
    for zone in inventory.unreachable:
        output.note(f"Warning: no answer from {zone}: what is there is not listed, and may bill.")


def show_nodes(session: Session, nodes: Sequence[Node]) -> None:
    """Print nodes as the user asked: as a table or as JSON."""
    show_inventory(session, Inventory(tuple(Allocation((node,)) for node in nodes)))


def allocation_table(allocations: Sequence[Allocation], now: datetime, *, err: bool = False) -> None:
    """Print a line for each node and each queued resource that is not ACTIVE, on stdout or on stderr."""
    output.table(COLUMNS, [row for item in allocations for row in _rows(item, now)], err=err)


def _rows(allocation: Allocation, now: datetime) -> Iterator[tuple[object, ...]]:
    queued = allocation.queued_resource
    if queued and queued.state is not QueueState.ACTIVE:
        yield _row(queued, "", now)
    for node in allocation.nodes:
        yield _row(node, len(node.addresses) or "", now)


def _row(item: Node | QueuedResource, hosts: object, now: datetime) -> tuple[object, ...]:
    return (
        item.name,
        item.zone,
        item.accelerator,
        hosts,
        item.provider_state,
        "yes" if item.spot else "no",
        item.runtime,
        clock.age(item.created, now),
        item.owner or UNKNOWN,
    )


def _fields(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "project": node.id.project,
        "zone": node.zone,
        "accelerator": node.accelerator,
        "state": node.provider_state,
        "health": node.health,
        "spot": node.spot,
        "runtime": node.runtime,
        "created": node.created,
        "owner": node.owner,
        "queued_resource": node.queued_resource,
        "addresses": list(node.addresses),
        "labels": dict(node.labels),
    }


def _queue_fields(queued: QueuedResource) -> dict[str, object]:
    return {
        "name": queued.name,
        "project": queued.id.project,
        "zone": queued.zone,
        "nodes": [node.name for node in queued.nodes],
        "accelerator": queued.accelerator,
        "state": queued.provider_state,
        "initiator": queued.initiator,
        "error": queued.error,
        "spot": queued.spot,
        "reservation": queued.reservation,
        "runtime": queued.runtime,
        "created": queued.created,
        "valid_until": queued.valid_until,
        "owner": queued.owner,
        "labels": dict(queued.labels),
    }
