"""Creates a node, and waits until every host answers over SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConflictError, DeadlineError, InterruptedByUser, StockoutError
from tpuctl.flows.hosts.ssh_access import await_ssh, install_key
from tpuctl.flows.nodes.lookup import find_node, require_ready
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.progress import Report
from tpuctl.nodes import CreateNode, HttpRequest, Node, NodeId, NodeRequest, NodeState
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

CREATE_TIMEOUT = 1800.0


def requests(provider: Provider, plan: UpPlan) -> list[HttpRequest]:
    """Return the requests by which `up` changes something, for --dry-run."""
    if plan.existing is None:
        return [provider.http_request(CreateNode(plan.request))]
    change = provider.ssh_key_change(plan.existing, plan.request.ssh_key)
    return [provider.http_request(change)] if change else []


def up(provider: Provider, ssh: Ssh, plan: UpPlan, report: Report) -> Node:
    """Do what the plan says and return the node once every host answers over SSH.

    Raises StockoutError, QuotaError, PreemptedError, HostError or DeadlineError; on Ctrl-C an
    InterruptedByUser that says how to continue, since the provider completes a create by itself.
    """
    try:
        if plan.existing is None:
            _create(provider, plan.request, report)
        else:
            report(f"{plan.request.id.name} exists")
        node = _await_ready(provider, plan.request.id, report)
        install_key(provider, node, plan.request.ssh_key, report)
        await_ssh(provider, ssh, node, report)
    except StockoutError as error:
        raise _with_other_zones(error, plan.request) from error
    except KeyboardInterrupt as error:
        raise _interrupted(plan.request) from error
    return node


def _create(provider: Provider, request: NodeRequest, report: Report) -> None:
    name = request.id.name
    report(f"creating {name} ({request.accelerator}) in {request.id.zone}")
    try:
        operation = provider.begin(CreateNode(request))
    except (DeadlineError, ConflictError):
        # The answer may be lost although the node was created: look, never send a second create blindly.
        if find_node(provider, request.id) is None:
            raise
        return
    operation.wait(
        "to be created",
        CREATE_TIMEOUT,
        hint=f"It may still be created: 'tpuctl up' again keeps waiting, 'tpuctl down {name}' gives up.",
    )


def _await_ready(provider: Provider, node_id: NodeId, report: Report) -> Node:
    reported = set[str]()

    def ready() -> Node | None:
        node = provider.get_node(node_id)
        if not node.state.becomes_ready:
            return require_ready(node)
        if node.provider_state not in reported:
            reported.add(node.provider_state)
            report(f"{node.name} is {node.provider_state}")
        return None

    return poll(
        ready,
        awaiting=f"node '{node_id.name}' to be {NodeState.READY}",
        timeout=CREATE_TIMEOUT,
        hint="See 'tpuctl ls'.",
    )


def _with_other_zones(error: StockoutError, request: NodeRequest) -> StockoutError:
    """Return a stockout whose hint names the next zones to try, those of the same continent first."""
    zone, accelerator = request.id.zone, accelerators.accelerator(request.accelerator)
    continent = zone.split("-")[0]
    others = sorted(
        (other for other in accelerator.zones if other != zone),
        key=lambda other: not other.startswith(continent),
    )
    hint = error.hint
    if others:
        more = f" (it is also offered in {', '.join(others[1:4])})" if others[1:] else ""
        hint = f"Try the next zone: tpuctl up {accelerator.type} --zone {others[0]}{more}, --spot, or later."
    return StockoutError(error.message, hint=hint, zone=zone, **error.facts)


def _interrupted(request: NodeRequest) -> InterruptedByUser:
    name = request.id.name
    return InterruptedByUser(
        f"Interrupted while '{name}' was being created; it may bill already.",
        hint=f"'tpuctl up {request.accelerator} --name {name}' resumes, 'tpuctl down {name}' deletes it.",
    )
