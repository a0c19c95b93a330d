"""Decides whether a zone has capacity left; sim/world/injected_faults.py injects stockouts.

- Computes the capacity that nodes and queued resources request, and lists the nodes that use it.
- Stores the capacity that a project has reserved, and computes how much of it nodes use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.sim.world import resources
from tpuctl.sim.world.api_errors import ApiError, Status, api_error, quota_exceeded
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.resources import Node, QueuedResource, is_preemptible
from tpuctl.sim.world.state import VACANT, State


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
        return resources.parse(self.parent).project

    @property
    def zone(self) -> str:
        return resources.parse(self.parent).zone

    @property
    def accelerator(self) -> Accelerator:
        return accelerators.catalogue()[self.accelerator_type]

    @property
    def units(self) -> int:
        """Their size in quotas and reservations: cores; a chip of v5e and v6e has one."""
        return self.count * self.accelerator.cores


def of_node(node: Node) -> Demand:
    """Return the demand of a node."""
    parent = resources.parse(node.name).parent
    return Demand(parent, node.accelerator_type, 1, node.preemptible, _requested_reservation(node))


def of_queued_resource(queued: QueuedResource) -> list[Demand]:
    """Return the demand of a queued resource by parent, type and tier."""
    counts = Counter(
        (resources.parse(name).parent, node["acceleratorType"], is_preemptible(node))
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
    return f"{resources.parse(node.name).parent}/reservations/-" if reserved else ""


@dataclass(frozen=True)
class Reservation:
    """Capacity that a project has reserved."""

    name: str
    """`projects/P/locations/Z/reservations/R`"""
    accelerator_type: str
    size: int
    """Cores, of v5e and v6e chips."""
    start: float = 0.0
    end: float = 4_102_444_800.0
    """Seconds since 1970; by default the end of 2099."""

    @property
    def units(self) -> str:
        """The unit of its size: `CORES` or `CHIPS`."""
        accelerator = accelerators.catalogue()[self.accelerator_type]
        return "CHIPS" if accelerator.cores_per_chip == 1 else "CORES"


class Reservations:
    """All reservations, in memory only; a node can only use one that has been added."""

    def __init__(self, state: State) -> None:
        self._by_name: dict[str, Reservation] = {}
        self._state = state

    def add(self, reservation: Reservation) -> None:
        """Add a reservation, in place of the one of the same name."""
        self._by_name[reservation.name] = reservation

    def all(self, prefix: str = "") -> list[Reservation]:
        """Return the reservations whose names start with `prefix`."""
        return [reservation for reservation in self._by_name.values() if reservation.name.startswith(prefix)]

    def used(self, name: str) -> int:
        """Return how much of a reservation is used, in its units."""
        nodes = nodes_with_capacity(self._state)
        return sum(of_node(node).units for node in nodes if node.reservation == name)

    def find(self, demand: Demand) -> Reservation:
        """Return the reservation that this demand would use, the emptiest that fits; raises NOT_FOUND."""
        parent, _, requested = demand.reservation.rpartition("/reservations/")
        fitting = [
            reservation
            for reservation in self.all(f"{parent}/reservations/")
            if requested in ("-", resources.id_of(reservation.name))
            and accelerators.catalogue()[reservation.accelerator_type].generation
            == demand.accelerator.generation
        ]
        if not fitting:
            raise api_error("no_reservation")
        return max(fitting, key=lambda reservation: reservation.size - self.used(reservation.name))

    def shortage(self, demand: Demand) -> Status | None:
        """Return why this demand cannot be provisioned from its reservation now, or None when it can."""
        try:
            reservation = self.find(demand)
        except ApiError as missing:
            return missing.status
        if self.used(reservation.name) + demand.units <= reservation.size:
            return None
        return api_error("reserved_stockout").status


QUOTAS: dict[tuple[str, bool], tuple[str, str]] = {
    # (generation, several hosts): on demand, preemptible or spot
    ("v2", False): ("TPUV2s", "TPUV2sPreemptible"),
    ("v2", True): ("TPUV2sPod", "TPUV2sPreemptiblePod"),
    ("v3", False): ("TPUV3s", "TPUV3sPreemptible"),
    ("v3", True): ("TPUV3sPod", "TPUV3sPreemptiblePod"),
    ("v4", False): ("TPUV4sPod", "TPUV4sPreemptiblePod"),
    ("v4", True): ("TPUV4sPod", "TPUV4sPreemptiblePod"),
    ("v5e", False): ("TPUV5sLitepod", "TPUV5sPreemptibleLitepod"),
    ("v5e", True): ("TPUV5sLitepod", "TPUV5sPreemptibleLitepod"),
    ("v5p", False): ("TPUV5P", "TPUV5PPreemptible"),
    ("v5p", True): ("TPUV5P", "TPUV5PPreemptible"),
    ("v6e", False): ("TPUV6E", "TPUV6EPreemptible"),
    ("v6e", True): ("TPUV6E", "TPUV6EPreemptible"),
}
"""How the quota ids start; from public logs, those of one host of v2 and v3 are ours."""
SCOPES = {"zone": "PerProjectPerZoneForTPUAPI", "region": "PerProjectPerRegionForTPUAPI"}
"""Zone or region -> how the ids of its quotas end."""
Quota = tuple[str, str, str]
"""Project, zone or region, quota id."""


class Capacity:
    """Capacity, quotas and reservations; limits that tests set are in memory only."""

    def __init__(self, state: State) -> None:
        self.limits: dict[tuple[str, str], int] = {}
        """(zone, accelerator type) -> nodes that can exist at a time; unlimited for any other type."""
        self.quotas = Quotas(state)
        self.reservations = Reservations(state)
        self._state = state

    def shortage(self, demand: Demand) -> Status | None:
        """Return why this demand cannot be provisioned now, or None when it can."""
        if demand.reservation:
            return self.reservations.shortage(demand)
        limit = self.limits.get((demand.zone, demand.accelerator_type))
        if limit is None or self.used(demand.zone, demand.accelerator_type) + demand.count <= limit:
            return None
        return api_error("stockout", zone=demand.zone).status

    def used(self, zone: str, accelerator_type: str) -> int:
        """Return how many nodes of a type use capacity in a zone, besides those of reservations."""
        return sum(
            1
            for node in nodes_with_capacity(self._state)
            if node.accelerator_type == accelerator_type
            and not node.reservation
            and resources.parse(node.name).zone == zone
        )


# Checks quotas when a node or a queued resource is created.


class Quotas:
    """The quotas that tests and faults set, in memory only; all others are unlimited."""

    def __init__(self, state: State) -> None:
        self.limits: dict[Quota, int] = {}
        """Quota -> cores, of v5e and v6e chips."""
        self._state = state

    def require(self, demand: Demand) -> None:
        """Raise RESOURCE_EXHAUSTED when this demand would exceed a quota."""
        self._require_injected(demand)
        exceeded = [
            (quota[2], self.limits[quota], quota[1])
            for quota in quotas_of(demand)
            if quota in self.limits and self.used(quota) + demand.units > self.limits[quota]
        ]
        if exceeded:
            raise quota_exceeded(demand.project, exceeded)

    def ids(self) -> Mapping[str, str]:
        """Return the id of every quota, and whether it holds by zone or by region."""
        stems = dict.fromkeys(stem for stems in QUOTAS.values() for stem in stems)
        return {stem + suffix: scope for stem in stems for scope, suffix in SCOPES.items()}

    def places(self, scope: str) -> list[str]:
        """Return every zone, or every region with one."""
        zones = availability.zones()
        return sorted({accelerators.region(zone) for zone in zones} if scope == "region" else zones)

    def limit(self, project: str, place: str, quota: str) -> int | None:
        """Return the limit of a quota in a zone or region; None where there is none.

        Faults that limit single accelerator types refuse requests, but are no quota.
        """
        facts = {"project": project, "zone": place, "quota": quota}
        faults = self._state.faults.in_force("quota")
        limits = [int(fault["limit"]) for fault in faults if fault.matches(facts)]
        own = self.limits.get((project, place, quota))
        return min([*limits, *([] if own is None else [own])], default=None)

    def used(self, quota: Quota) -> int:
        """Return how much of a quota is used: a queued resource uses it until it is deleted."""
        return sum(demand.units for demand in self._demands() if quota in quotas_of(demand))

    def _require_injected(self, demand: Demand) -> None:
        """Check the quotas that faults set; all that one fault sets are reported together."""
        facts = {"project": demand.project, "zone": demand.zone, "type": demand.accelerator_type}
        faults = self._state.faults
        for fault in faults.in_force("quota"):
            exceeded = [
                (quota[2], fault["limit"], quota[1])
                for quota in quotas_of(demand)
                if fault.matches({**facts, "quota": quota[2]})
                and self.used(quota) + demand.units > fault["limit"]
            ]
            if exceeded and faults.fire_on(fault, demand.parent, "tpu.Create*"):
                raise quota_exceeded(demand.project, exceeded)

    def _demands(self) -> Iterator[Demand]:
        """Yield all that counts in quotas: queued resources, and nodes without one."""
        for queued in self._state.queued_resources.all():
            yield from of_queued_resource(queued)
        for node in self._state.nodes.all():
            if not self._state.queued_resources.get(node.queued_resource):
                yield of_node(node)


def quotas_of(demand: Demand) -> list[Quota]:
    """Return the quotas that a demand counts in."""
    places = {"zone": demand.zone, "region": accelerators.region(demand.zone)}
    stem = QUOTAS[demand.accelerator.generation, demand.accelerator.hosts > 1][demand.preemptible]
    return [(demand.project, place, stem + SCOPES[scope]) for scope, place in places.items()]
