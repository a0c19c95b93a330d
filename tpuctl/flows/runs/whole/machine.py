"""Makes the node of a whole run, and says which node may be deleted with its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import StockoutError
from tpuctl.flows.nodes import up as creation
from tpuctl.flows.nodes.down import DownPlan
from tpuctl.flows.nodes.inventory import Allocation, Inventory
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.progress import Report
from tpuctl.nodes import (
    CreateNode,
    DeleteNode,
    DeleteQueuedResource,
    HttpRequest,
    Node,
    NodeState,
    joined,
)
from tpuctl.runs import BY_SILENCE, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


@dataclass(frozen=True)
class Removal:
    """What is deleted after a run, and what stays."""

    plan: DownPlan
    kept: str = ""
    """Why its node stays, as a sentence; empty for nothing that stays."""


NOTHING_TO_DELETE = DownPlan(())


def planned_node(plan: UpPlan) -> Node:
    """Return the node that a plan creates first, as far as it is known before it exists."""
    request, slices = plan.request, plan.options.slices
    node = Node(
        id=request.id, state=NodeState.CREATING, provider_state="", accelerator=request.accelerator,
        runtime=request.runtime, created="", spot=request.spot, addresses=("",) * (plan.hosts or 1),
        multislice=slices > 1,
    )  # fmt: skip
    if slices == 1:
        return node
    names = [f"{node.name}-{number}" for number in range(slices)]
    return joined(node.name, [replace(node, id=replace(node.id, name=name)) for name in names])


def node_of(plan: UpPlan) -> Node:
    """Return the node that a plan uses, or what it will be."""
    existing = plan.existing
    return existing.whole if existing and existing.nodes else planned_node(plan)


def acquire(provider: Provider, ssh: Ssh, plans: Sequence[UpPlan], report: Report) -> Allocation:
    """Return the node of the first plan for which there is capacity; raises what `up` raises for the last."""
    for plan in plans[:-1]:
        try:
            return creation.up(provider, ssh, plan, report)
        except StockoutError as error:
            report(error.message)
    return creation.up(provider, ssh, plans[-1], report)


def deletion_requests(provider: Provider, plan: UpPlan) -> list[HttpRequest]:
    """Return the request that deletes what a plan creates, for --dry-run."""
    first = plan.creation
    if isinstance(first, CreateNode):
        return [provider.http_request(DeleteNode(first.request.id))]
    return [provider.http_request(DeleteQueuedResource(first.request.id))]


def own_nodes(inventory: Inventory, run: str, owner: str, bucket: str) -> tuple[Allocation, ...]:
    """Return what was made for a run, preempted or waiting included; one that its user had before was not."""
    items = (item for item in inventory.allocations if item.is_owned_by(owner))
    return tuple(item for item in items if item.is_made_for(run, bucket))


def plan_removal(
    inventory: Inventory, verdict: Verdict, owner: str, users: Users, *, bucket: str, is_deleted: bool
) -> Removal:
    """Return what may be deleted now that a run has ended: its own node, if nobody else uses it.

    A zone that does not answer and may hold it counts: `down` raises DeadlineError then.
    """
    tpu, own = verdict.tpu, own_nodes(inventory, verdict.run, owner, bucket)
    left = own or tuple(
        item for item in inventory.allocations if tpu and tpu.uid in [node.id.uid for node in item.nodes]
    )
    if not left:
        silent = [zone for zone in inventory.unreachable if tpu is None or zone == tpu.zone]
        return Removal(DownPlan((), tuple(silent) if is_deleted else ()))
    standings = " ".join(map(_standing, left))
    if not is_deleted:
        return Removal(NOTHING_TO_DELETE, standings)
    reason = _reason_to_stay(left, verdict, users, is_own=bool(own))
    return Removal(NOTHING_TO_DELETE, f"{reason} {standings}") if reason else Removal(DownPlan(own))


Users = Callable[[Node], Sequence[str]]
"""Returns the other runs that have not ended on a node."""


def _reason_to_stay(left: Sequence[Allocation], verdict: Verdict, users: Users, *, is_own: bool) -> str:
    """Return why a node must not be deleted, as a sentence; empty for one that may be."""
    if not is_own:
        return f"{left[0].name} was not made for this run."
    if verdict.basis == BY_SILENCE:
        return f"Nobody knows whether the script still runs on {left[0].name}."
    ready = (node for item in left for node in item.nodes if node.state is NodeState.READY)
    others = next((runs for runs in map(users, ready) if runs), ())
    return f"Run '{others[0]}' uses it." if others else ""


def _standing(item: Allocation) -> str:
    if item.is_over:
        return f"What is left of {item.name} is deleted by '{item.deletion}'."
    if item.is_kept_by_terraform:
        return f"{item.name} goes on billing: Terraform keeps it."
    return f"{item.name} goes on billing until '{item.deletion}'."
