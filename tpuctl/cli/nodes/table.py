"""Prints nodes and queued resources, with what is known of them, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from tpuctl import clock
from tpuctl.catalogue.prices import Price
from tpuctl.cli import output
from tpuctl.cli.printing import price_fields
from tpuctl.cli.session import Session
from tpuctl.flows.nodes.lifetime import idle_limit
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.overview.node_runs import RunOnNode, Stake, Workload, stakes
from tpuctl.flows.overview.views import (
    Overview,
    bills,
    cost_so_far,
    expiry,
    waiting_reason,
)
from tpuctl.nodes import Node, QueuedResource, QueueState
from tpuctl.parallel import Result, fanout, within

COLUMNS = ("NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE", "OWNER")
OPTIONAL = ("RUN", "ENDS IN", "PRICE/H", "NOTE")
"""Columns that are shown where one of the TPUs has something there."""
UNKNOWN = "-"
NO_RUNS: Mapping[str, str] = {}
Row = Mapping[str, object]


def show_inventory(session: Session, inventory: Inventory) -> None:
    """Print what there is, as the user asked: as a table or as JSON."""
    show_overview(session, Overview(inventory, Workload()))


def show_nodes(session: Session, nodes: Sequence[Node]) -> None:
    """Print nodes as the user asked: as a table or as JSON."""
    show_inventory(session, Inventory(tuple(Allocation((node,)) for node in nodes)))


def show_overview(session: Session, overview: Overview) -> None:
    """Print what is known of each TPU, and what did not answer, as the user asked: as a table or as JSON."""
    if session.as_json:
        output.json(overview_fields(session, overview))
        return
    overview_table(session, overview, session.time)
    note_unlisted(overview.inventory)
    if overview.workload.unknown:
        output.note(f"Which runs work there is not known: {overview.workload.unknown}")


def note_unlisted(inventory: Inventory) -> None:
    """Name the zones that did not answer, one a line."""
    for zone in inventory.unreachable:
        output.note(f"Warning: no answer from {zone}: what is there is not listed, and may bill.")


def overview_fields(session: Session, overview: Overview) -> dict[str, object]:
    """Return what is known of each TPU, for JSON."""
    inventory = overview.inventory
    queue = [item.queued_resource for item in inventory.allocations if item.queued_resource]
    return {
        "nodes": [node_fields(session, overview, node) for node in inventory.nodes],
        "queued_resources": [queue_fields(session, queued) for queued in queue],
        "unreachable": list(inventory.unreachable),
        "runs_unknown": overview.workload.unknown,
        "maintenance_unknown": overview.maintenance_unknown,
    }


def overview_table(session: Session, overview: Overview, now: datetime) -> None:
    """Print a line for each TPU, with its run, its price and what its user has to know."""
    allocations = overview.inventory.allocations
    _table([row for item in allocations for row in _rows(item, now, overview, session)], err=False)


def allocation_table(
    allocations: Sequence[Allocation], now: datetime, *, err: bool = False, runs: Mapping[str, str] = NO_RUNS
) -> None:
    """Print a line for each node and each queued resource that is not ACTIVE, on stdout or on stderr.

    `runs` is what is in the column RUN, by the nodes' uids.
    """
    overview = Overview(Inventory(tuple(allocations)), Workload())
    _table([row for item in allocations for row in _rows(item, now, overview, None, runs)], err=err)


def runs_at_stake(session: Session, allocations: Iterable[Allocation]) -> Mapping[str, str]:
    """Return what a deletion would end on each node, by uid: which run, since when, what it has saved.

    Of a run that only the hosts know its name: its records are gone, or in another bucket.
    `?` where the bucket does not say so soon, which keeps nobody from deleting.
    """
    nodes = [node for item in allocations for node in item.nodes]
    if not nodes:
        return NO_RUNS
    look = within(lambda: _look(session, nodes))
    results = look.value or [Result[Node, list[Stake]](node, error=look.error) for node in nodes]
    reasons = dict.fromkeys(result.error.message for result in results if result.error)
    for reason in reasons:
        output.note(f"Warning: which runs this ends is not known: {reason}")
    texts = {result.item.id.uid: _stakes(result, session.time) for result in results}
    free = [node for node in nodes if not texts[node.id.uid]]
    unlisted = within(lambda: fanout(lambda node: session.witnesses.beside(node.id), free)).value or ()
    others = {result.item.id.uid: ", ".join(result.value or ()) for result in unlisted}
    return {uid: text or others.get(uid) or "none" for uid, text in texts.items()}


def show_restarts(session: Session) -> None:
    """Say which runs wait to be started again: somebody's watcher makes TPUs for them, which bill."""
    from tpuctl.flows.runs.recovery.watch import to_be_restarted  # few commands read runs

    look = within(lambda: to_be_restarted(session.cloud.bucket, session.owner))
    for name in look.value or ():
        output.note(f"Run '{name}' is to be started again, on a TPU that bills. End it: tpuctl cancel {name}")


def _look(session: Session, nodes: Sequence[Node]) -> list[Result[Node, list[Stake]]]:
    bucket = session.cloud.bucket
    return fanout(lambda node: stakes(bucket, node), nodes)


def _stakes(result: Result[Node, list[Stake]], now: datetime) -> str:
    if result.value is None:
        return "?"
    texts = [
        f"{stake.run.run} ({stake.run.state} {clock.age(stake.run.started, now)}, "
        f"{stake.checkpoint or 'no checkpoint'})"
        for stake in result.value
    ]
    return "; ".join(texts)


def _table(rows: Sequence[Row], *, err: bool) -> None:
    columns = [*COLUMNS, *(name for name in OPTIONAL if any(row[name] for row in rows))]
    output.table(columns, [[row[name] for name in columns] for row in rows], err=err)


def _rows(
    allocation: Allocation,
    now: datetime,
    overview: Overview,
    session: Session | None,
    runs: Mapping[str, str] = NO_RUNS,
) -> Iterator[Row]:
    queued = allocation.queued_resource
    if queued and queued.state is not QueueState.ACTIVE:
        yield _row(queued, now, overview, "")
    for node in allocation.nodes:
        row = _row(node, now, overview, _price(session, node))
        yield {**row, "RUN": runs.get(node.id.uid, row["RUN"])}


def _price(session: Session | None, node: Node) -> str:
    """The price of a node per hour; empty where nobody knows it, or it does not bill."""
    price: Price | None = session.prices.of(node) if session and bills(node) else None
    return price.short if price and price.is_known else ""


def _row(item: Node | QueuedResource, now: datetime, overview: Overview, price: str) -> Row:
    hosts = len(item.addresses) if isinstance(item, Node) else 0
    run = overview.workload.on(item) if isinstance(item, Node) else None
    return {
        "NAME": item.name,
        "ZONE": item.zone,
        "TYPE": item.accelerator,
        "HOSTS": hosts or "",
        "STATE": item.provider_state,
        "SPOT": "yes" if item.spot else "no",
        "RUNTIME": item.runtime,
        "AGE": clock.age(item.created, now),
        "OWNER": item.owner or UNKNOWN,
        "RUN": f"{run.run} ({run.state})" if run else "",
        "ENDS IN": _remaining(expiry(item), now),
        "PRICE/H": price,
        "NOTE": "; ".join(overview.troubles(item, now)),
    }


def _remaining(moment: str, now: datetime) -> str:
    """Return the time until a moment in its largest unit; empty for no moment, 0s for one that has passed."""
    return clock.age(clock.iso(now), clock.parse(moment)) if moment else ""


# Builds the JSON form of nodes and queued resources.


def node_fields(session: Session, overview: Overview, node: Node) -> dict[str, object]:
    """Return what is known of a node."""
    announced, run = overview.maintenance.get(node.id.uid), overview.workload.newest.get(node.id.uid)
    price = session.prices.of(node)
    cost = cost_so_far(node, price, session.time)
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
        "notes": list(overview.troubles(node, session.time)),
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
