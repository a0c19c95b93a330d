"""Stops a node of one host, so that its chips do not bill, and starts it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    InterruptedByUser,
    NotFoundError,
    StateError,
    StockoutError,
    TpuctlError,
    joined_hints,
    say_bill,
)
from tpuctl.flows.hosts.way_in import grant_access
from tpuctl.flows.nodes.lookup import Allocation, find_allocation
from tpuctl.flows.progress import Report
from tpuctl.nodes import Change, HttpRequest, Node, NodeState, SshKey, StartNode, StopNode
from tpuctl.nodes.queued_resources import require_running
from tpuctl.polling import poll
from tpuctl.shells import again

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

TIMEOUT = 900.0


@dataclass(frozen=True)
class PowerPlan:
    """The node that is stopped or started, and whether that takes a request."""

    node: Node
    change: Change | None
    """None where the node is in the state already, or on its way there."""
    zone: str | None = None
    """The zone that was named: elsewhere there may be another of the name."""

    def command(self, word: str) -> str:
        """Return the command that does something to the same node."""
        return again((word, self.node.name), {"--zone": self.zone} if self.zone else {})


def find_for_power(provider: Provider, name: str, zone: str | None = None) -> Node:
    """Return the node of this name if it can be stopped and started; sends reads only.

    Raises StateError for one of several hosts, of a queued resource, or spot, as the provider would;
    NotFoundError; and DeadlineError where a zone that did not answer may hold it.
    """
    allocation = find_allocation(provider, name, zone, f"node '{name}'")
    if allocation.queued_resource or allocation.nodes[0].queued_resource:
        raise _cannot_pause(allocation, "belongs to a queued resource, whose nodes end with it")
    node = allocation.nodes[0]
    if node.hosts > 1:
        raise _cannot_pause(allocation, f"has {node.hosts} hosts, and only a TPU of one host pauses")
    if node.spot:
        raise _cannot_pause(allocation, "is a spot TPU, which is never started again")
    return node


def plan_stop(provider: Provider, name: str, zone: str | None = None) -> PowerPlan:
    """Return how a node is stopped; raises as `find_for_power`, and StateError for a node not READY."""
    node = find_for_power(provider, name, zone)
    if node.state in (NodeState.STOPPING, NodeState.STOPPED):
        return PowerPlan(node, None, zone)
    return PowerPlan(require_running(node), StopNode(node.id), zone)


def plan_start(provider: Provider, name: str, zone: str | None = None) -> PowerPlan:
    """Return how a node is started; raises as `find_for_power`, and for a node that has ended."""
    node = find_for_power(provider, name, zone)
    if node.state in (NodeState.STOPPING, NodeState.STOPPED):
        return PowerPlan(node, StartNode(node.id), zone)
    return PowerPlan(node if node.state.becomes_ready else require_running(node), None, zone)


def stop_requests(provider: Provider, plan: PowerPlan) -> list[HttpRequest]:
    """Return the requests by which `stop` changes something, for --dry-run."""
    return [provider.http_request(plan.change)] if plan.change else []


def start_requests(provider: Provider, plan: PowerPlan, key: SshKey) -> list[HttpRequest]:
    """Return the requests by which `start` changes something, for --dry-run."""
    key_change = provider.ssh_key_change(plan.node, key)
    changes = [change for change in (plan.change, key_change) if change]
    return [provider.http_request(change) for change in changes]


def stop(provider: Provider, plan: PowerPlan, report: Report) -> Node:
    """Stop the node that is planned, and return it once it is STOPPED.

    Raises DeadlineError, and on Ctrl-C an InterruptedByUser: the provider completes the stop by itself. Every
    error says whether the node bills.
    """
    name, zone = plan.node.name, plan.node.zone
    report(f"stopping {name}" if plan.change else f"{name} is {plan.node.provider_state}")
    try:
        return _change_state(provider, plan.node, plan.change, NodeState.STOPPING, NodeState.STOPPED)
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted while '{name}' in {zone} was being stopped; it may still bill.",
            hint=f"Wait until it is STOPPED: {plan.command('stop')}",
            may_bill=[f"{name} in {zone}"],
        ) from error
    except Exception as error:
        _say_bill(provider, plan.node, error, f"Stop it: {plan.command('stop')}")
        raise


def start(provider: Provider, ssh: Ssh, plan: PowerPlan, key: SshKey, report: Report) -> Node:
    """Start the node that is planned, and return it once its host answers over SSH.

    Raises StockoutError when the zone has no capacity for it now, and as `grant_access` does; every error
    says whether it bills.
    """
    name, zone = plan.node.name, plan.node.zone
    try:
        started = _started(provider, plan, report)
        return grant_access(provider, ssh, started, key, report)
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted while '{name}' in {zone} was being started; it bills from now on.",
            hint=joined_hints(f"Resume: {plan.command('start')}", _ways_to_end(plan)),
            may_bill=[f"{name} in {zone}"],
        ) from error
    except Exception as error:
        if isinstance(error, StockoutError):
            error.hint = (
                f"Its disk is kept: try '{plan.command('start')}' later, or create another TPU elsewhere."
            )
        elif isinstance(error, TpuctlError) and not isinstance(error, NotFoundError):
            error.hint = joined_hints(error.hint, f"Resume: {plan.command('start')}")
        _say_bill(provider, plan.node, error, _ways_to_end(plan))
        raise


def _say_bill(provider: Provider, node: Node, error: Exception, commands: str) -> None:
    """Add to an error that a node bills, or may where the provider does not answer."""
    try:
        if not provider.get_node(node.id).state.bills:
            return
        verb = "bills"
    except NotFoundError:
        return
    except (TpuctlError, KeyboardInterrupt):
        verb = "may bill"
    place = f"{node.name} in {node.zone}"
    say_bill(error, f"Node '{node.name}' in {node.zone} {verb}.", commands, [place])


def _ways_to_end(plan: PowerPlan) -> str:
    return joined_hints(
        f"Stop it again: {plan.command('stop')}",
        "" if plan.node.is_kept_by_terraform else f"Delete it: {plan.command('down')}",
    )


def _started(provider: Provider, plan: PowerPlan, report: Report) -> Node:
    node = plan.node
    if node.state is NodeState.STOPPING:
        report(f"{node.name} is {node.provider_state}: it is started once it is STOPPED")
        node = _settled(provider, node, NodeState.STOPPED, lambda state: state is NodeState.STOPPING)
    report(f"starting {node.name}" if plan.change else f"{node.name} is {node.provider_state}")
    return _change_state(provider, node, plan.change, NodeState.STARTING, NodeState.READY)


def _change_state(
    provider: Provider, node: Node, change: Change | None, during: NodeState, after: NodeState
) -> Node:
    """Carry a change out and return the node in its state `after`; raises NotFoundError where it is gone.

    Another node that has its name by now stays as it is. A change that is refused since the node is in
    `during` or `after` by now was made by another client, or by an earlier request whose answer was lost.
    """
    if change:
        provider.get_node(node.id)
        try:
            provider.begin(change).wait(f"to be {after}", TIMEOUT)
        except StateError:
            if provider.get_node(node.id).state not in (during, after):
                raise
    return _settled(provider, node, after, lambda state: state is during or state.becomes_ready)


def _settled(
    provider: Provider, node: Node, after: NodeState, is_on_its_way: Callable[[NodeState], bool]
) -> Node:
    def settled() -> Node | None:
        current = provider.get_node(node.id)
        if current.state is after:
            return current
        if not is_on_its_way(current.state):
            require_running(current)
            raise StateError(
                f"Node '{node.name}' is {current.provider_state}, not {after}: another command changed it.",
            )
        return None

    return poll(settled, awaiting=f"node '{node.name}' to be {after}", timeout=TIMEOUT)


def _cannot_pause(item: Allocation, reason: str) -> StateError:
    another = "" if item.is_kept_by_terraform else "; 'tpuctl up' makes another"
    return StateError(
        f"'{item.name}' cannot be stopped and started: it {reason}.",
        hint=f"'{item.deletion}' deletes it, and what is on its disks{another}.",
    )
