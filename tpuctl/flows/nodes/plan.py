"""Plans `up`: checks the options against the catalogue, the zone and the existing node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.cloud.provider import Provider
from tpuctl.errors import StateError, UsageError, nearest
from tpuctl.flows.nodes.lookup import find_node
from tpuctl.nodes import (
    LABEL,
    LABEL_VALUE,
    OWNER_LABEL,
    OWNER_METADATA,
    Node,
    NodeId,
    NodeRequest,
    SshKey,
    owner_label,
)
from tpuctl.nodes.readiness import require_ready

NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class UpOptions:
    """The options of `up`, configuration included."""

    accelerator: str
    name: str
    zone: str
    runtime: str | None
    """None for the newest one of the framework."""
    framework: str
    spot: bool
    network: str
    service_account: str | None
    owner: str
    """The account whose node it will be."""
    subnetwork: str | None = None
    external_ips: bool = True


@dataclass(frozen=True)
class UpPlan:
    """What `up` will do: create a node by `request`, or use the existing one."""

    request: NodeRequest
    existing: Node | None
    hosts: int
    chips: int


def default_name(user: str, accelerator: str) -> str:
    """Return the name of a user's node of a type when none is given: always the same, so `up` finds it."""
    return re.sub(r"[^-a-z0-9]", "-", f"{user}-{accelerator}".lower()).lstrip("-0123456789") or "tpu"


def plan_up(provider: Provider, ssh_key: SshKey, options: UpOptions) -> UpPlan:
    """Check the options and return what is to be done; sends reads only.

    Raises UsageError for a type or runtime that the zone does not offer, StateError when the name belongs
    to a node of another type or one that is about to end.
    """
    accelerator = accelerators.accelerator(options.accelerator)
    if not NODE_NAME.fullmatch(options.name):
        raise UsageError(
            f"'{options.name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    _check_zone(provider, accelerator, options.zone)
    runtime = _runtime(provider, accelerator, options)
    node = provider.node_id(options.zone, options.name)
    existing = _existing(provider, node, options)
    request = _request(node, accelerator, runtime, ssh_key, options)
    return UpPlan(request, existing, accelerator.hosts, accelerator.chips)


def _check_zone(provider: Provider, accelerator: Accelerator, zone: str) -> None:
    """The zone's own list decides; the catalogue only names alternatives."""
    if accelerators.region(zone) not in map(accelerators.region, accelerators.zones()):
        close = nearest(zone, accelerators.zones())
        if close:
            raise UsageError(
                f"There is no zone '{zone}' with TPUs.", hint=f"Did you mean {close[0]}?", zone=zone
            )
    if accelerator.type not in provider.list_accelerator_types(zone):
        raise UsageError(
            f"{accelerator.type} is not offered in {zone}.",
            hint=f"It has been seen in {', '.join(accelerator.zones)}.",
            zone=zone,
            accelerator=accelerator.type,
        )


def _runtime(provider: Provider, accelerator: Accelerator, options: UpOptions) -> str:
    offered = provider.list_runtimes(options.zone)
    if not options.runtime:
        return provider.default_runtime(accelerator, options.framework, offered)
    if options.runtime not in offered:
        close = nearest(options.runtime, offered)
        raise UsageError(
            f"{options.zone} has no runtime version '{options.runtime}'.",
            hint=f"The nearest are {', '.join(close or offered[:3])}.",
            runtime=options.runtime,
        )
    return options.runtime


def _existing(provider: Provider, node: NodeId, options: UpOptions) -> Node | None:
    existing = find_node(provider, node)
    if existing is None:
        return None
    differences = _differences(existing, options)
    if differences:
        raise StateError(
            f"Node '{existing.name}' exists and {' and '.join(differences)}.",
            hint="Give the new one another name with --name, or delete the old one with 'tpuctl down'.",
        )
    return existing if existing.state.becomes_ready else require_ready(existing)


def _differences(node: Node, options: UpOptions) -> list[str]:
    """How a node differs from what the options name explicitly."""
    differences = []
    if node.accelerator != options.accelerator:
        differences.append(f"is a {node.accelerator}")
    if options.spot and not node.spot:
        differences.append("is not spot")
    if options.runtime and options.runtime != node.runtime:
        differences.append(f"has the runtime {node.runtime}")
    return differences


def _request(
    node: NodeId, accelerator: Accelerator, runtime: str, ssh_key: SshKey, options: UpOptions
) -> NodeRequest:
    return NodeRequest(
        id=node,
        accelerator=accelerator.type,
        runtime=runtime,
        spot=options.spot,
        network=options.network,
        subnetwork=options.subnetwork,
        external_ips=options.external_ips,
        service_account=options.service_account,
        labels={LABEL: LABEL_VALUE, OWNER_LABEL: owner_label(options.owner)},
        metadata={OWNER_METADATA: options.owner},
        ssh_key=ssh_key,
    )
