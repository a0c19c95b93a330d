"""Creates a node, and waits until every host answers over SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.cloud.provider import Operation, Provider
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    HostError,
    InterruptedByUser,
    StateError,
    StockoutError,
    TpuctlError,
)
from tpuctl.flows.hosts.ssh_access import grant_access
from tpuctl.flows.nodes.lookup import find_node
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.progress import Report
from tpuctl.nodes import CreateNode, HttpRequest, Node, NodeId, NodeRequest, NodeState
from tpuctl.nodes.readiness import require_ready
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

CREATE_TIMEOUT = 1800.0


def requests(provider: Provider, plan: UpPlan) -> list[HttpRequest]:
    """Return the requests by which `up` changes something, for --dry-run."""
    if plan.existing is None:
        return [provider.http_request(plan.creation)]
    change = provider.ssh_key_change(plan.existing, plan.request.ssh_key)
    return [provider.http_request(change)] if change else []


def up(provider: Provider, ssh: Ssh, plan: UpPlan, report: Report) -> Node:
    """Do what the plan says and return the node once every host answers over SSH.

    Raises StockoutError, QuotaError, PreemptedError, HostError or DeadlineError; on Ctrl-C an
    InterruptedByUser that says how to continue, since the provider completes a create by itself.
    """
    request = plan.request
    try:
        if plan.existing is None:
            _create(provider, request, report)
        else:
            report(f"{request.id.name} exists")
        node = _require_as_requested(_await_ready(provider, request.id, report), request)
        return grant_access(provider, ssh, node, request.ssh_key, report)
    except StockoutError as error:
        raise _with_other_zones(error, request) from error
    except KeyboardInterrupt as error:
        raise _interrupted(request) from error
    except (DeadlineError, HostError) as error:
        raise _with_what_bills(provider, request, error) from error


def _create(provider: Provider, request: NodeRequest, report: Report) -> None:
    name = request.id.name
    report(f"creating {name} ({request.accelerator}) in {request.id.zone}")
    _begin(provider, request).wait(
        "to be created",
        CREATE_TIMEOUT,
        hint=f"It may still be created: 'tpuctl up' again keeps waiting, 'tpuctl down {name}' gives up.",
    )


def _begin(provider: Provider, request: NodeRequest) -> Operation:
    """Start the create; after a lost answer return the operation that it began, and never send a second."""
    earlier = provider.creations(request.id)
    try:
        return provider.begin(CreateNode(request))
    except (DeadlineError, ConflictError):
        begun = [
            operation for name, operation in provider.creations(request.id).items() if name not in earlier
        ]
        if begun:
            return begun[0]
        if find_node(provider, request.id) is None:
            raise
        return Operation(f"Node '{request.id.name}'", lambda: True)


def _require_as_requested(node: Node, request: NodeRequest) -> Node:
    """Raise StateError for a node that another command has created meanwhile, and that is another one."""
    if node.accelerator != request.accelerator or (request.spot and not node.spot):
        kind = f"{node.accelerator}{', spot' if node.spot else ', not spot'}"
        raise StateError(
            f"Node '{node.name}' is a {kind}: another command created it meanwhile.",
            hint="Give yours another name with --name.",
            accelerator=node.accelerator,
        )
    return node


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


def _with_what_bills(provider: Provider, request: NodeRequest, error: TpuctlError) -> TpuctlError:
    """Return the error with the sentence that the node bills, or may bill if the provider does not answer."""
    try:
        bills = "bills" if find_node(provider, request.id) else ""
    except TpuctlError:
        bills = "may bill"
    if not bills:
        return error
    name = request.id.name
    return type(error)(
        f"{error.message} Node '{name}' {bills}.",
        hint=f"{error.hint} 'tpuctl up {request.accelerator} --name {name}' resumes, "
        f"'tpuctl down {name}' deletes it.".strip(),
        **error.facts,
        may_bill=[f"{name} in {request.id.zone}"],
    )


def _interrupted(request: NodeRequest) -> InterruptedByUser:
    name = request.id.name
    return InterruptedByUser(
        f"Interrupted while '{name}' was being created; it may bill already.",
        hint=f"'tpuctl up {request.accelerator} --name {name}' resumes, 'tpuctl down {name}' deletes it.",
    )
