"""Finds or makes the machine of an attempt, and deletes what earlier attempts have left.

Its name follows from run and attempt, so that whoever goes on finds what another has begun.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal

from tpuctl.bucket_layout import NodePaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price
from tpuctl.errors import NotFoundError, StateError, StockoutError, joined_hints, saying_bill
from tpuctl.flows.hosts.way_in import grant_access
from tpuctl.flows.nodes.down import DownPlan, down
from tpuctl.flows.nodes.lifetime import NET, Lifetime
from tpuctl.flows.nodes.lookup import Allocation, take_inventory
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.placement.creation import await_node, zone_of
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import UpPlan, plan_up
from tpuctl.flows.nodes.up import up
from tpuctl.flows.runs.lookup import started_on, unsettled
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery.authority import own_node
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.nodes import RESTART_LABEL, Node, NodeId, NodeState, QueuedResource
from tpuctl.recovery import Machine
from tpuctl.runs import Tpu

LONGEST_NAME = 63
QUEUE_PATIENCE = 600.0
"""Seconds in a queue before another step begins anew."""


def machine_name(run: str, attempt: int) -> str:
    """Return the name of the machine that is made for an attempt: `digits-2`."""
    ending = f"-{attempt}"
    name = run if run[0].isalpha() else f"r{run}"
    if len(name) + len(ending) > LONGEST_NAME:
        digest = hashlib.sha256(run.encode()).hexdigest()[:8]
        name = f"{name[: LONGEST_NAME - len(ending) - 9].rstrip('-')}-{digest}"
    return f"{name}{ending}"


def find_or_make(
    tools: Tools, run: StoredRun, recipe: Machine, attempt: int, before: Tpu, *, is_bad: bool
) -> Node:
    """Return a READY machine whose hosts answer: that of the attempt before, if it is the run's, and usable.

    One that is gone or bad (`is_bad`) is deleted first. Raises StockoutError where no zone has capacity at
    the price, and what `up` raises.
    """
    node = None if is_bad else _usable(tools, run, before)
    users = _users(tools, run.name, before.id) if node else []
    if node and not users:
        with that_bills(run.name, node):
            return grant_access(tools.provider, tools.ssh, node, tools.ssh.login_key(), tools.report)
    if node:
        tools.report(f"{node.name} is busy with run '{users[0]}': another machine is made")
    else:
        delete_left(tools, run, recipe.owner, before)
    return _make(tools, run.name, recipe, attempt)


def that_bills(run: str, tpu: Node | Tpu) -> AbstractContextManager[None]:
    """Return a context whose errors say that the machine of a run bills, and both commands."""
    commands = joined_hints(f"Resume: tpuctl watch {run}", f"Delete it: tpuctl down {tpu.name}")
    return saying_bill(tpu.name, tpu.zone, commands)


def _usable(tools: Tools, run: StoredRun, before: Tpu) -> Node | None:
    """Return the machine of the attempt before, READY; None where it goes, or is gone, or not the run's."""
    node = own_node(tools.provider, run.bucket, run.record, before)
    if node is None or node.id.uid != before.uid:
        return None
    if node.state.becomes_ready:
        tools.report(f"{node.name} is {node.provider_state}: waiting for it")
        try:
            return await_node(tools.provider, node.id, tools.report)
        except NotFoundError:
            return None
    return node if node.state is NodeState.READY else None


def delete_left(tools: Tools, run: StoredRun, owner: str, before: Tpu) -> None:
    """Delete the machine of an earlier attempt and its queued resource, which would take up quota.

    What became of other runs on it is settled first: nobody could tell later. One that was not made for the
    run stays, and it is said what ends it. Raises StateError where another run uses it, or another slice that
    is deleted with it.
    """
    items = say_what_stays(tools, run, owner, before)
    users = _users(tools, run.name, before.id) if items else []
    for item in items:
        others = [node for node in item.nodes if node.id.uid not in before.id.uids]
        for other in others:
            _require_unused(other.name, _users(tools, run.name, other.id))
        if not item.is_over:
            _require_unused(before.name, users)
            tools.report(f"{item.name} is replaced")
    if items:
        down(tools.provider, DownPlan(items), tools.report)


def say_what_stays(tools: Tools, run: StoredRun, owner: str, before: Tpu) -> tuple[Allocation, ...]:
    """Say which machine of an earlier attempt was not made for the run, and return what may be deleted."""
    items, staying = left_items(tools, run, owner, before)
    for item in staying:
        tools.report(f"{item.name} was not made for this run: it stays, and bills. End it: {item.deletion}")
    return items


def left_items(
    tools: Tools, run: StoredRun, owner: str, before: Tpu
) -> tuple[tuple[Allocation, ...], list[Allocation]]:
    """Return what there is of the machine of an earlier attempt: what may be deleted, and what stays.

    That is what was made for the run, and what the run was submitted to and Google has taken back since.
    """
    values = launch_values.known(run.bucket.name, run.record)
    is_submitted_to = values is not None and values.tpu.id == before.id
    inventory = take_inventory(tools.provider, before.zone)
    there = [item for item in inventory.allocations if _is_of(item, before)]
    left = [
        item
        for item in there
        if item.is_owned_by(owner)
        and (item.is_made_for(run.name, run.bucket.name) or (is_submitted_to and item.is_over))
    ]
    return tuple(left), [item for item in there if item not in left and not item.is_over]


def _is_of(item: Allocation, tpu: Tpu) -> bool:
    if any(node.id.uid in tpu.id.uids for node in item.nodes):
        return True
    queued, names = item.queued_resource, {part.name for part in tpu.id.parts}
    named = queued is not None and any(node.name in names for node in queued.nodes)
    return named and item.is_over and not item.nodes


def _users(tools: Tools, run: str, node: NodeId) -> list[str]:
    """Return the other runs on a machine that have not ended, or of which nobody can tell.

    Those that only its hosts know, too: their records are gone, or in another bucket.
    """
    started = [item for part in node.parts for item in started_on(tools.bucket, NodePaths.of(part))]
    users = []
    for name in unsettled(tools.bucket, (item.run for item in started), tools.bucket.now()):
        other = StoredRun(tools.bucket, name)
        if name == run:
            continue
        try:
            if not other.node_uids() & node.uids:
                continue
            if not settle(other, tools.witnesses).verdict:
                users.append(name)
        except NotFoundError:
            continue  # it was never started
        except BadObjectError:
            users.append(name)
    return users or tools.witnesses.beside(node, run)


def _require_unused(name: str, users: Sequence[str]) -> None:
    if users:
        raise StateError(
            f"'{name}' cannot be replaced: run '{users[0]}' uses it, too.",
            hint=joined_hints(f"Wait for it: tpuctl wait {users[0]}", f"Stop it: tpuctl cancel {users[0]}"),
        )


def plan_machine(tools: Tools, run: str, recipe: Machine, attempt: int) -> UpPlan:
    """Return what makes the machine of an attempt, or finds it; sends reads only."""
    options = options_of(recipe, run, machine_name(run, attempt), tools.bucket.name)
    plan = _plan(tools, options, recipe.zones)
    if plan.existing is None and recipe.ceiling is not None:
        return _plan(tools, options, _affordable(tools, plan, recipe))
    return plan


def _make(tools: Tools, run: str, recipe: Machine, attempt: int) -> Node:
    plan = plan_machine(tools, run, recipe, attempt)
    if plan.existing and plan.existing.restarted_run(tools.bucket.name) != run:
        raise StateError(
            f"'{plan.options.name}' in {plan.existing.zone} has the name of the machine of run '{run}', and"
            " is another.",
            hint=f"Delete it if nobody uses it: tpuctl down {plan.options.name}",
        )
    with _within_budget(tools, plan):
        return up(tools.provider, tools.ssh, plan, tools.report).whole


def _within_budget(tools: Tools, plan: UpPlan) -> AbstractContextManager[None]:
    """Return a context in which a machine may be made; raises StockoutError where the limits forbid it."""
    if tools.limits is None or tools.limits.max_price is None or plan.existing:
        return nullcontext()
    name = plan.options.name
    made = {
        item.name: sum((_amount(tools.node_price(each), item.name) for each in _parts(item)), Decimal(0))
        for item in take_inventory(tools.provider).allocations
        if RESTART_LABEL in item.labels and not item.is_over
    }
    price = max(_amount(tools.price_of(creation), name) for creation in plan.creations)
    return tools.limits.spending(name, price, made)


def _parts(item: Allocation) -> Sequence[Node | QueuedResource]:
    return item.nodes or ([item.queued_resource] if item.queued_resource else [])


def _amount(price: Price, name: str) -> Decimal:
    if price.amount is None:
        raise StockoutError(f"What {name} costs is unknown ({price.reason}), and watch_max_price is set.")
    return price.amount


def _plan(tools: Tools, options: UpOptions, zones: tuple[str, ...]) -> UpPlan:
    wait = QUEUE_PATIENCE if options.queued else 0.0
    return plan_up(tools.provider, tools.ssh.login_key(), options, Search(zones, zones, wait=wait))


def options_of(recipe: Machine, run: str, name: str, bucket: str) -> UpOptions:
    """Return what `up` is asked for to make a run's machine of this name."""
    has_end = recipe.ttl or recipe.idle
    return UpOptions(
        accelerator=recipe.accelerator,
        name=name,
        runtime=recipe.runtime,
        framework=recipe.framework,
        spot=recipe.spot,
        owner=recipe.owner,
        subnetworks=recipe.subnetworks,
        queued=recipe.queued,
        slices=recipe.slices,
        lifetime=Lifetime(recipe.ttl, recipe.idle if has_end else NET),
        bucket=bucket,
        restart=run,
        typed=("watch", run),
        labels=recipe.labels,
        **recipe.chosen,
    )


def _affordable(tools: Tools, plan: UpPlan, recipe: Machine) -> tuple[str, ...]:
    """Return the zones where it costs no more than the recipe allows; an unknown price is too much."""
    prices = {zone_of(creation): tools.price_of(creation) for creation in plan.creations}
    ceiling = recipe.ceiling
    assert ceiling is not None
    zones = tuple(
        zone for zone, price in prices.items() if price.amount is not None and price.amount <= ceiling
    )
    if not zones:
        each = ", ".join(f"{price.short} in {zone}" for zone, price in prices.items())
        raise StockoutError(
            f"No zone has a {recipe.accelerator} for {recipe.max_price} per hour: {each}.", zones=list(prices)
        )
    return zones


def delete_all(tools: Tools, run: str, recipe: Machine, *, besides: str = "") -> None:
    """Delete every machine that was made for a run, but that with the uid `besides`.

    One that another run uses stays, which is said. Raises DeadlineError where a zone that may have one did
    not answer.
    """
    inventory = take_inventory(tools.provider)
    items = tuple(
        item
        for item in inventory.allocations
        if item.restarted_run(tools.bucket.name) == run
        and item.is_owned_by(recipe.owner)
        and besides not in {node.id.uid for node in item.nodes}
        and not _stays(tools, run, item)
    )
    silent = tuple(zone for zone in inventory.unreachable if zone in recipe.zones and not besides)
    if items or silent:
        down(tools.provider, DownPlan(items, silent), tools.report)


def _stays(tools: Tools, run: str, item: Allocation) -> bool:
    """Whether another run goes on, or waits, on a machine that was made for this one."""
    users = [] if item.is_over else [user for node in item.nodes for user in _users(tools, run, node.id)]
    if users:
        tools.report(f"{item.name} stays: run '{users[0]}' uses it. Afterwards: {item.deletion}")
    return bool(users)
