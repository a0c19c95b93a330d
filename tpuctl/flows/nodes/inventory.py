"""Lists what bills or may come to bill: nodes, and queued resources with the nodes they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tpuctl.cloud.provider import Provider
from tpuctl.errors import StateError
from tpuctl.nodes import (
    Node,
    NodeId,
    NodeList,
    NodeState,
    QueuedResource,
    QueuedResourceList,
    QueueState,
    joined,
)
from tpuctl.nodes.candidates import race_of
from tpuctl.nodes.owner import deletion
from tpuctl.parallel import fanout, values


@dataclass(frozen=True)
class Allocation:
    """What people call a TPU: a queued resource with its nodes, or a node that was created directly."""

    nodes: tuple[Node, ...]
    """Those that exist; a queued resource that waits has none."""
    queued_resource: QueuedResource | None = None

    @property
    def name(self) -> str:
        return self._first.name

    @property
    def zone(self) -> str:
        return self._first.zone

    @property
    def names(self) -> frozenset[str]:
        """Every name by which it can be meant: of the queued resource and of its nodes."""
        node_ids = [*(node.id for node in self.nodes), *self._planned_nodes()]
        return frozenset({self.name, *(node.name for node in node_ids)})

    @property
    def owner(self) -> str:
        """Whose it is, for people to read; empty if nobody knows."""
        return self._first.owner

    @property
    def managed(self) -> bool:
        """Created by tpuctl."""
        return self._first.managed

    def is_owned_by(self, identity: str) -> bool:
        """Whether tpuctl created it for an identity."""
        return self._first.is_owned_by(identity)

    def is_made_for(self, run: str, bucket: str) -> bool:
        """Whether it was made for a run of a bucket, or for a restart of it."""
        return self._first.is_made_for(run, bucket)

    def restarted_run(self, bucket: str) -> str:
        """The run of a bucket for whose restart it was made; empty for none."""
        return self._first.restarted_run(bucket)

    def is_usable_by(self, identity: str) -> bool:
        """Whether a command without a name may choose it."""
        return self._first.is_usable_by(identity)

    @property
    def is_kept_by_terraform(self) -> bool:
        """Created by Terraform: no command of tpuctl deletes it."""
        return self._first.is_kept_by_terraform

    @property
    def deletion(self) -> str:
        """The command that deletes it."""
        return deletion(self.name, self.labels)

    @property
    def labels(self) -> Mapping[str, str]:
        return self._first.labels

    @property
    def race(self) -> str:
        """Which search in several zones created it; empty for one that was created in a single zone."""
        return race_of(self.labels)

    @property
    def age_order(self) -> tuple[float, str]:
        """Sorts the oldest first, the same for everybody who looks."""
        return self._first.created_at, self.zone

    @property
    def is_over(self) -> bool:
        """Whether it gives nobody a TPU any more, and is left to be deleted or is being deleted."""
        lost = any(node.state in (NodeState.PREEMPTED, NodeState.DELETING) for node in self.nodes)
        queued = self.queued_resource
        return lost or bool(queued and (queued.state.is_over or queued.state is QueueState.DELETING))

    @property
    def is_leaving(self) -> bool:
        """Whether the provider says that it is being deleted: the queued resource, and so its nodes."""
        if self.queued_resource:
            return self.queued_resource.state is QueueState.DELETING
        return self.nodes[0].state is NodeState.DELETING

    @property
    def has_capacity(self) -> bool:
        """Whether it has its nodes: those that were created directly, or all of an active queued resource."""
        queued = self.queued_resource
        if self.is_over or not self.nodes:
            return False
        is_complete = queued is None or len(self.nodes) == len(queued.nodes)
        return is_complete and (queued is None or queued.state is QueueState.ACTIVE)

    @property
    def whole(self) -> Node:
        """Its node, which joins all slices where it has several; raises StateError where one is missing."""
        queued = self.queued_resource
        if queued and len(queued.nodes) > len(self.nodes):
            raise StateError(
                f"'{self.name}' has {len(self.nodes)} of its {len(queued.nodes)} slices:"
                f" it is {queued.provider_state}.",
                hint=f"What happened: tpuctl why {self.name}",
            )
        by_name = {node.name: node for node in self.nodes}
        if queued and len(queued.nodes) > 1:
            return joined(self.name, [by_name[node.name] for node in queued.nodes])
        return self.nodes[0]

    @property
    def _first(self) -> QueuedResource | Node:
        return self.queued_resource or self.nodes[0]

    def _planned_nodes(self) -> Sequence[NodeId]:
        return self.queued_resource.nodes if self.queued_resource else ()


@dataclass(frozen=True)
class Inventory:
    """Every allocation of one zone or of all zones."""

    allocations: tuple[Allocation, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer: what is there is missing from the list, and may bill."""
    zone: str | None = None
    """The only zone that was looked at; None for all."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node."""
        return tuple(node for allocation in self.allocations for node in allocation.nodes)

    def without_others(self, identity: str) -> Inventory:
        """Return it without what tpuctl created for other people."""
        kept = (item for item in self.allocations if not item.managed or item.is_owned_by(identity))
        return replace(self, allocations=tuple(kept))


def take_inventory(provider: Provider, zone: str | None = None) -> Inventory:
    """Return what there is in a zone, or in every zone; both lists are requested at once."""

    listings: list[Callable[[], NodeList | QueuedResourceList]] = [
        lambda: provider.list_nodes(zone),
        lambda: provider.list_queued_resources(zone),
    ]
    nodes, queue = values(fanout(lambda listing: listing(), listings), "requests")
    assert isinstance(nodes, NodeList)
    assert isinstance(queue, QueuedResourceList)
    return replace(grouped(nodes, queue), zone=zone)


def grouped(nodes: NodeList, queue: QueuedResourceList) -> Inventory:
    """Return the allocations that these nodes and queued resources are."""
    allocations = [Allocation(_made_by(queued, nodes.nodes), queued) for queued in queue.queued_resources]
    grouped_ids = {node.id for allocation in allocations for node in allocation.nodes}
    allocations += [Allocation((node,)) for node in nodes.nodes if node.id not in grouped_ids]
    unreachable = sorted({*nodes.unreachable, *queue.unreachable})
    return Inventory(tuple(sorted(allocations, key=_order)), tuple(unreachable))


def _made_by(queued: QueuedResource, nodes: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(node for node in nodes if node.zone == queued.zone and node.queued_resource == queued.name)


def _order(allocation: Allocation) -> tuple[str, str]:
    return allocation.name, allocation.zone
