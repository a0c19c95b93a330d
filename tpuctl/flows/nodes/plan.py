"""Plans `up`: checks the options against the catalogue, the zone and the existing node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.cloud.provider import Provider
from tpuctl.errors import StateError, UsageError, nearest
from tpuctl.flows.nodes.lookup import find_node
from tpuctl.flows.nodes.options import UpOptions, creation
from tpuctl.nodes import CreateNode, Creation, Node, NodeId, NodeRequest, SshKey
from tpuctl.nodes.readiness import require_ready

NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class UpPlan:
    """What `up` will do: carry out `creation`, or use the existing node."""

    creation: Creation
    existing: Node | None
    hosts: int
    """Of one slice."""
    chips: int
    """Of one slice."""

    @property
    def request(self) -> NodeRequest:
        """The node to create, or the pattern of several."""
        return self.creation.request if isinstance(self.creation, CreateNode) else self.creation.request.node


def default_name(user: str, accelerator: str) -> str:
    """Return the name of a user's node of a type when none is given: always the same, so `up` finds it."""
    return re.sub(r"[^-a-z0-9]", "-", f"{user}-{accelerator}".lower()).lstrip("-0123456789") or "tpu"


def plan_up(provider: Provider, ssh_key: SshKey, options: UpOptions, zone: str) -> UpPlan:
    """Check the options and return what is to be done in a zone; sends reads only.

    Raises UsageError for a type or runtime that the zone does not offer, StateError when the name belongs
    to a node of another type or one that is about to end.
    """
    if not NODE_NAME.fullmatch(options.name):
        raise UsageError(
            f"'{options.name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    planned = planned_creation(provider, ssh_key, options, zone)
    existing = _existing(provider, provider.node_id(zone, options.name), options)
    return UpPlan(planned, existing, options.type.hosts, options.type.chips)


def planned_creation(provider: Provider, ssh_key: SshKey, options: UpOptions, zone: str) -> Creation:
    """Return the change that creates what the options request in a zone; sends reads only.

    Raises UsageError for a type or runtime that the zone does not offer.
    """
    _check_zone(provider, options.type, zone)
    return creation(provider, options, zone, _runtime(provider, options, zone), ssh_key)


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


def _runtime(provider: Provider, options: UpOptions, zone: str) -> str:
    offered = provider.list_runtimes(zone)
    if not options.runtime:
        return provider.default_runtime(options.type, options.framework, offered)
    if options.runtime not in offered:
        close = nearest(options.runtime, offered)
        raise UsageError(
            f"{zone} has no runtime version '{options.runtime}'.",
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
