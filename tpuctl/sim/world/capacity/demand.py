"""Computes the capacity that nodes and queued resources request, and lists the nodes that use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.sim.world import names
from tpuctl.sim.world.api_json import is_preemptible
from tpuctl.sim.world.resources import Node, QueuedResource
from tpuctl.sim.world.state import State
from tpuctl.sim.world.state_machine import VACANT


@dataclass(frozen=True)
class Demand:
    """A number of nodes of one accelerator type."""

    parent: str
    """`projects/P/locations/Z`"""
    accelerator_type: str
    count: int
    preemptible: bool
    reservation: str = ""
    """The reservation that they are to come from, `.../-` for any that fits; '' for none."""

    @property
    def project(self) -> str:
        return names.parse(self.parent).project

    @property
    def zone(self) -> str:
        return names.parse(self.parent).zone

    @property
    def accelerator(self) -> Accelerator:
        return accelerators.catalogue()[self.accelerator_type]

    @property
    def units(self) -> int:
        """Their size in quotas and reservations: cores; a chip of v5e and v6e has one."""
        return self.count * self.accelerator.cores


def of_node(node: Node) -> Demand:
    """Return the demand of a node."""
    parent = names.parse(node.name).parent
    return Demand(parent, node.accelerator_type, 1, node.preemptible, _requested_reservation(node))


def of_queued_resource(queued: QueuedResource) -> list[Demand]:
    """Return the demand of a queued resource by parent, type and tier."""
    counts = Counter(
        (names.parse(name).parent, node["acceleratorType"], is_preemptible(node))
        for name, node in queued.nodes.items()
    )
    return [
        Demand(parent, accelerator_type, count, preemptible, queued.reservation)
        for (parent, accelerator_type, preemptible), count in counts.items()
    ]


def nodes_with_capacity(state: State) -> Iterator[Node]:
    """Return the nodes that use capacity."""
    return (node for node in state.nodes.all() if uses_capacity(node, state))


def uses_capacity(node: Node, state: State) -> bool:
    """Whether a node uses capacity: not if its create or start will fail, or its delete found it vacant."""
    if node.state in VACANT:
        return False
    running = state.operations.running_on(node.name)
    if running is None:
        return True
    failing = running.verb in ("create", "start") and running.injected_error
    return not failing and not (running.verb == "delete" and running.vacant)


def _requested_reservation(node: Node) -> str:
    """A node requests any reservation of its project and zone: the API has no field to name one."""
    if node.reservation:
        return node.reservation
    reserved = node.spec.get("schedulingConfig", {}).get("reserved")
    return f"{names.parse(node.name).parent}/reservations/-" if reserved else ""
