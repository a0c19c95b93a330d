"""Says how often a run that is submitted is started again, and on what machine."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tpuctl import accelerators, durations
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.placement.search import expand
from tpuctl.job_header import ToolTable
from tpuctl.keeper.records import IDLE, TTL
from tpuctl.nodes import Node
from tpuctl.recovery.records import Machine, Restarts

UNLIMITED = "unlimited"


@dataclass(frozen=True)
class RestartRequest:
    """What options and configuration say about restarts; empty leaves it to the header, or to tpuctl."""

    after_loss: str = ""
    """A number, or UNLIMITED."""
    after_failure: str = ""
    """A number."""
    is_configured: bool = False
    """Whether the former two are of the configuration, which the header overrides."""
    zones: tuple[str, ...] = ()
    """Zones, regions or `any`, tried after the zone of the node."""
    max_price: str = ""
    network: str = "default"
    subnetwork: str = ""
    external_ips: bool = True
    service_account: str = ""


def policy(request: RestartRequest, table: ToolTable, node: Node) -> Restarts:
    """Return how often a run on this node is started again: for spot without end unless somebody says so.

    Raises UsageError for what is no number.
    """
    header = tuple(
        "" if value is None else str(value) for value in (table.restarts, table.restarts_on_failure)
    )
    given = (request.after_loss, request.after_failure)
    first, second = (header, given) if request.is_configured else (given, header)
    after_loss, after_failure = (strong or weak for strong, weak in zip(first, second, strict=True))
    return Restarts(
        after_loss=_count(after_loss or (UNLIMITED if node.spot else "0"), "--restarts"),
        after_failure=_count(after_failure or "0", "--restarts-on-failure") or 0,
    )


def _count(text: str, option: str) -> int | None:
    if text == UNLIMITED and option == "--restarts":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise UsageError(f"{option} {text} is no number of restarts.", hint=f"For instance {option} 3.")
    return int(text)


def machine_like(node: Node, request: RestartRequest, framework: str, owner: str) -> Machine:
    """Return the machine to make when a node is lost: one like it; raises UsageError for a wrong zone."""
    zones = expand(request.zones, accelerators.accelerator(node.accelerator)) if request.zones else ()
    return Machine(
        accelerator=node.accelerator,
        zones=tuple(dict.fromkeys((node.zone, *zones))),
        spot=node.spot,
        runtime=node.runtime,
        owner=owner,
        framework=framework,
        queued=bool(node.queued_resource),
        network=request.network,
        subnetwork=request.subnetwork,
        external_ips=request.external_ips,
        service_account=request.service_account,
        ttl=_seconds(node, TTL),
        idle=_seconds(node, IDLE),
        max_price=request.max_price,
    )


def moved(machine: Machine | None, node: Node) -> Machine | None:
    """Return the machine like another node, which was made in place of the one that was planned."""
    if machine is None:
        return None
    return msgspec.structs.replace(
        machine,
        accelerator=node.accelerator,
        zones=tuple(dict.fromkeys((node.zone, *machine.zones))),
        runtime=node.runtime,
        queued=bool(node.queued_resource),
        ttl=_seconds(node, TTL),
        idle=_seconds(node, IDLE),
    )


def _seconds(node: Node, key: str) -> int:
    """Return a length of the node's lifetime; 0 where its metadata has none."""
    try:
        return durations.parse(node.metadata.get(key, "0s"))
    except ValueError:
        return 0
