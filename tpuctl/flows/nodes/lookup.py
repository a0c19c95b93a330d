"""Finds the node that a command means. A zone that did not answer is never taken for an empty one.

- Lists what bills or may come to bill: nodes, and queued resources with the nodes they make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError, joined_hints, nearest
from tpuctl.nodes import (
    Node,
    NodeId,
    NodeList,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    QueueState,
    joined,
)
from tpuctl.nodes.candidates import race_of
from tpuctl.nodes.owner import Owned
from tpuctl.nodes.queued_resources import require_ready
from tpuctl.parallel import fanout, values
from tpuctl.shells import again

ELSEWHERE = "In every zone: the same command without --zone."


def find_node(provider: Provider, node: NodeId) -> Node | None:
    """Return a node, or None when the provider says that it does not exist."""
    try:
        return provider.get_node(node)
    except NotFoundError:
        return None


def find_queued_resource(provider: Provider, queued_resource: QueuedResourceId) -> QueuedResource | None:
    """Return a queued resource, or None when the provider says that it does not exist."""
    try:
        return provider.get_queued_resource(queued_resource)
    except NotFoundError:
        return None


def is_deletable(provider: Provider, node: NodeId) -> bool:
    """Whether a hint may name `tpuctl down`: not for what Terraform keeps; for what is unknown, yes."""
    try:
        existing = find_node(provider, node)
    except TpuctlError:
        return True
    return existing is None or not existing.is_kept_by_terraform


def node_state(provider: Provider, node: NodeId) -> NodeState:
    """Return what a node is doing; GONE when it does not exist, or its name is another node's now."""
    existing = find_node(provider, node)
    return existing.state if existing else NodeState.GONE


class NoTpuError(StateError):
    """The owner has no node of the types; `accelerator` is the one to create."""

    def __init__(self, types: Sequence[str], zone: str | None = None) -> None:
        self.accelerator = types[0] if types else "v3-8"
        creation = again(("up", self.accelerator), {"--zone": zone} if zone else {})
        super().__init__(
            f"There is no {' or '.join(types) or 'TPU'} to run on{f' in {zone}' if zone else ''}.",
            hint=joined_hints(ELSEWHERE if zone else "", f"Create one: {creation}"),
            accelerators=list(types),
        )


def find_ready(
    provider: Provider,
    name: str | None,
    accelerator: str | Sequence[str] | None,
    owner: str,
    zone: str | None = None,
) -> Node:
    """Return the node to use: the one named, else the owner's only READY one of the type, else Terraform's.

    Slices of one request are one node, unless one of them is named. Of several types the first counts that
    has a READY node. Raises NotFoundError or StateError, and DeadlineError where a zone that did not answer
    may hold it.
    """
    types = (accelerator,) if isinstance(accelerator, str) else tuple(accelerator or ())
    return _require_decided(provider, _ready(provider, name, types, owner, zone))


def _require_decided(provider: Provider, node: Node) -> Node:
    """Raise StateError for one of several candidates: `up` may delete it in favour of another."""
    race = race_of(node.labels)
    if not race:
        return node
    own = node.queued_resource or node.name
    items = (item for item in take_inventory(provider).allocations if item.race == race and not item.is_over)
    zones = [item.zone for item in items if item.name == own]
    if len(zones) > 1:
        raise _undecided(own, zones)
    return node


def _ready(provider: Provider, name: str | None, types: Sequence[str], owner: str, zone: str | None) -> Node:
    listing = provider.list_nodes(zone)
    if name:
        return require_ready(_named(provider, listing, name, zone))
    usable = [node for node in listing.nodes if node.is_usable_by(owner)]
    candidates = [node for node in usable if not types or node.accelerator in types]
    candidates.sort(key=lambda node: node.is_kept_by_terraform)
    for is_terraforms in (False, True):
        chosen = _first_ready(
            [node for node in candidates if node.is_kept_by_terraform is is_terraforms], types
        )
        if chosen:
            return require_ready(_whole(provider, chosen))
    if listing.unreachable:
        raise no_answer(listing.unreachable, "your TPU")
    if candidates:
        return require_ready(_whole(provider, candidates[0]))
    raise NoTpuError(types, zone)


def _first_ready(candidates: Sequence[Node], types: Sequence[str]) -> Node | None:
    """Return the only READY one of the first type that has any; raises StateError for several."""
    ready = [node for node in candidates if node.state is NodeState.READY]
    first = next((kind for kind in types if any(node.accelerator == kind for node in ready)), None)
    ready = [node for node in ready if first in (None, node.accelerator)]
    names = {(node.zone, _request_of(node)): None for node in ready}
    if len(names) > 1:
        fitting = ", ".join(name for _, name in names)
        raise StateError(f"Several nodes fit: {fitting}.", hint="Choose one with --tpu NAME.")
    return ready[0] if ready else None


def _request_of(node: Node) -> str:
    """Return the name under which a node was requested: slices of one request share it."""
    return node.queued_resource if node.multislice else node.name


def _whole(provider: Provider, node: Node) -> Node:
    """Return the node, or all slices of its request as one."""
    if not node.multislice:
        return node
    return find_allocation(provider, node.queued_resource, node.zone).whole


def choose_only(
    candidates: Sequence[Allocation], unreachable: Sequence[str], hint: str
) -> tuple[Allocation, ...]:
    """Return the only TPU among the user's own, as all candidates of its search; nothing without one.

    Raises StateError for several, with the hint; DeadlineError where a silent zone may hold a second one.
    """
    names = sorted({item.name for item in candidates})
    if len(names) > 1:
        raise StateError(f"You have {len(names)} TPUs: {', '.join(names)}.", hint=hint, nodes=names)
    if names and unreachable:
        raise DeadlineError(
            f"No answer from {', '.join(unreachable)}: another TPU of yours may be there.",
            hint=f"If you mean '{names[0]}', name it.",
            unreachable=list(unreachable),
            nodes=names,
        )
    return choose_candidates(candidates, names[0]) if names else ()


def choose(allocations: Iterable[Allocation], name: str) -> Allocation | None:
    """Return the allocation that a name means, None without one; raises StateError for several."""
    matches = [allocation for allocation in allocations if name in allocation.names]
    _require_single(name, [match.zone for match in matches])
    return matches[0] if matches else None


def find_allocation(provider: Provider, name: str, zone: str | None, subject: str = "") -> Allocation:
    """Return what a name means, in a zone or in all; messages call it `subject`, by default `'NAME'`.

    Raises NotFoundError, StateError for several, DeadlineError where a zone that did not answer may hold it.
    """
    inventory = take_inventory(provider, zone)
    return choose(inventory.allocations, name) or _missing(inventory, name, subject or f"'{name}'")


def find_decided(provider: Provider, name: str, zone: str | None) -> Allocation:
    """Return what a name means, which may not be one of several candidates; raises as `find_allocation`."""
    return require_decided(name, find_candidates(provider, name, zone))


def require_decided(name: str, matches: Sequence[Allocation]) -> Allocation:
    """Return the only allocation of a name; raises StateError for several."""
    if len({match.race or match.zone for match in matches}) > 1:
        _require_single(name, [match.zone for match in matches])
    if len(matches) > 1:
        raise _undecided(name, [match.zone for match in matches])
    return matches[0]


def find_candidates(provider: Provider, name: str, zone: str | None) -> tuple[Allocation, ...]:
    """Return one allocation, or all candidates of a search in several zones; raises as `find_allocation`."""
    inventory = take_inventory(provider, zone)
    return choose_candidates(inventory.allocations, name) or _missing(inventory, name, f"'{name}'")


def choose_candidates(allocations: Iterable[Allocation], name: str) -> tuple[Allocation, ...]:
    """Return what a name means: one allocation, or all candidates of one search in several zones.

    Raises StateError for several others; returns nothing where nothing has the name.
    """
    matches = [allocation for allocation in allocations if name in allocation.names]
    if len({match.race or match.zone for match in matches}) > 1:
        _require_single(name, [match.zone for match in matches])
    return tuple(matches)


def no_answer(zones: Sequence[str], subject: str) -> DeadlineError:
    """Return the error for zones that did not answer and may hold `subject`."""
    return DeadlineError(
        f"No answer from {', '.join(zones)}: {subject} may be there.",
        hint="Try again in a minute, or name another zone with --zone. A second TPU would bill besides.",
        unreachable=list(zones),
    )


def no_such_node(names: Sequence[str], inventory: Inventory) -> NotFoundError:
    """Return the error for names that nothing has; suggests the nearest name."""
    existing = {name for allocation in inventory.allocations for name in allocation.names}
    return _not_found(names, existing, inventory.zone)


def _missing(inventory: Inventory, name: str, subject: str) -> NoReturn:
    if inventory.unreachable:
        raise no_answer(inventory.unreachable, subject)
    raise no_such_node([name], inventory)


def _named(provider: Provider, listing: NodeList, name: str, zone: str | None) -> Node:
    matches = [node for node in listing.nodes if node.name == name]
    requested = [node for node in listing.nodes if node.multislice and node.queued_resource == name]
    _require_single(name, sorted({match.zone for match in (*matches, *requested)}))
    if matches:
        return matches[0]
    if requested:
        return _whole(provider, requested[0])
    if listing.unreachable:
        raise no_answer(listing.unreachable, f"node '{name}'")
    raise _not_found([name], {node.name for node in listing.nodes}, zone)


def _require_single(name: str, zones: Sequence[str]) -> None:
    if len(zones) > 1:
        raise StateError(
            f"There are {len(zones)} TPUs called '{name}': in {' and in '.join(sorted(zones))}.",
            hint="Choose one with --zone ZONE.",
            zones=sorted(zones),
        )


def _undecided(name: str, zones: Sequence[str]) -> StateError:
    return StateError(
        f"'{name}' is not decided: there are candidates in {', '.join(zones)}.",
        hint=joined_hints("Repeat the command that created them.", f"Delete all: tpuctl down {name}"),
        zones=list(zones),
    )


def _not_found(names: Sequence[str], existing: Collection[str], zone: str | None) -> NotFoundError:
    close, where = nearest(names[0], sorted(existing)), f" in {zone}" if zone else ""
    if close:
        hint = f"Did you mean {close[0]}?"
    else:
        hint = f"Existing nodes{where}: {', '.join(sorted(existing))}." if existing else ""
        hint = joined_hints(hint or f"There are no nodes{where}.", ELSEWHERE if zone else "")
    return NotFoundError(f"There is no node '{names[0]}'{where}.", hint=hint, nodes=list(names))


@dataclass(frozen=True)
class Allocation(Owned):
    """What people call a TPU: a queued resource with its nodes, or a node that was created directly."""

    nodes: tuple[Node, ...]
    """Those that exist; a queued resource that waits has none."""
    queued_resource: QueuedResource | None = None

    @property
    def id(self) -> NodeId | QueuedResourceId:
        return self._first.id

    @property
    def names(self) -> frozenset[str]:
        """Every name by which it can be meant: of the queued resource and of its nodes."""
        node_ids = [*(node.id for node in self.nodes), *self._planned_nodes()]
        return frozenset({self.name, *(node.name for node in node_ids)})

    @property
    def labels(self) -> Mapping[str, str]:
        return self._first.labels

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._first.metadata

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
