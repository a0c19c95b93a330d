"""What there is to be had: capacity, quotas and reservations, and who uses how much of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.state.database import RecordTable
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Problem, Status, exhausted, problem
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.resources import Node, QueuedResource
from tpuctl.sim.world.states import VACANT

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
"""Where a quota holds -> how its id ends."""


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
    """Seconds since 1970; without a value, the end of 2099."""

    @property
    def units(self) -> str:
        """What its size counts."""
        one = accelerators.catalogue()[self.accelerator_type]
        return "CHIPS" if one.cores_per_chip == 1 else "CORES"


@dataclass(frozen=True)
class Wanted:
    """Nodes of one kind that somebody asks for."""

    parent: str
    """`projects/P/locations/Z`"""
    type: str
    count: int
    preemptible: bool
    reservation: str = ""
    """The reservation they are to come from, `.../-` for any that fits; '' for none."""

    @property
    def accelerator(self) -> Accelerator:
        return accelerators.catalogue()[self.type]

    @property
    def units(self) -> int:
        """What they count in quotas and reservations: cores; a chip of v5e and v6e has one."""
        return self.count * self.accelerator.cores

    def quotas(self) -> list[tuple[str, str, str]]:
        """Return the quotas that they count in: project, zone or region, id."""
        project, zone = names.place(self.parent)
        places = {"zone": zone, "region": accelerators.region(zone)}
        stem = QUOTAS[self.accelerator.generation, self.accelerator.hosts > 1][self.preemptible]
        return [(project, place, stem + SCOPES[scope]) for scope, place in places.items()]


class Supply:
    """The limits that tests and rehearsals set, in memory only, as faults are; without any there is plenty.

    Only reservations have to be there to be used.
    """

    def __init__(
        self,
        nodes: RecordTable[Node],
        queued: RecordTable[QueuedResource],
        operations: Operations,
        faults: FaultRegistry,
    ) -> None:
        self.capacity: dict[tuple[str, str], int] = {}
        """(zone, accelerator type) -> nodes that can be there at a time."""
        self.quota: dict[tuple[str, str, str], int] = {}
        """(project, zone or region, quota id) -> cores, of v5e and v6e chips."""
        self.reservations: dict[str, Reservation] = {}
        """By name."""
        self._nodes = nodes
        self._queued = queued
        self._operations = operations
        self._faults = faults

    def require_quota(self, wanted: Wanted) -> None:
        """Raise RESOURCE_EXHAUSTED when these nodes would exceed a quota."""
        self._require_asked_quota(wanted)
        over = [
            (identifier, self.quota[project, place, identifier], place)
            for project, place, identifier in wanted.quotas()
            if (project, place, identifier) in self.quota
            and self.used((project, place, identifier)) + wanted.units
            > self.quota[project, place, identifier]
        ]
        if over:
            raise exhausted(names.place(wanted.parent)[0], over)

    def used(self, quota: tuple[str, str, str]) -> int:
        """Return how much of a quota is used: a queued resource uses it until it is deleted."""
        return sum(one.units for one in self._holders() if quota in one.quotas())

    def shortage(self, wanted: Wanted) -> Status | None:
        """Return why these nodes cannot be provisioned now, or None when they can."""
        zone = names.place(wanted.parent)[1]
        if wanted.reservation:
            return self._reserved_shortage(wanted)
        limit = self.capacity.get((zone, wanted.type))
        if limit is None or self.occupied(zone, wanted.type) + wanted.count <= limit:
            return None
        return problem("stockout", zone=zone).status

    def occupied(self, zone: str, accelerator_type: str) -> int:
        """Return how many nodes of a type take up room in a zone, reserved ones left out."""
        return sum(
            1
            for node in self._occupants()
            if node.accelerator_type == accelerator_type
            and not node.reservation
            and names.place(node.name)[1] == zone
        )

    def taken(self, reservation: str) -> int:
        """Return how much of a reservation is in use."""
        return sum(wanted_by(node).units for node in self._occupants() if node.reservation == reservation)

    def source(self, wanted: Wanted) -> str:
        """Return the name of the reservation that these nodes would come from; raises NOT_FOUND."""
        return self._reservation(wanted).name

    def _require_asked_quota(self, wanted: Wanted) -> None:
        """The same for the quotas that faults set, all of one fault at once."""
        project, zone = names.place(wanted.parent)
        facts = {"project": project, "zone": zone, "type": wanted.type}
        for fault in self._faults.in_force("quota"):
            over = [
                (quota[2], fault["limit"], quota[1])
                for quota in wanted.quotas()
                if fault.matches({**facts, "quota": quota[2]})
                and self.used(quota) + wanted.units > fault["limit"]
            ]
            if over and self._faults.fire_on(fault, wanted.parent, "tpu.Create*"):
                raise exhausted(project, over)

    def _reserved_shortage(self, wanted: Wanted) -> Status | None:
        try:
            found = self._reservation(wanted)
        except Problem as missing:
            return missing.status
        if self.taken(found.name) + wanted.units <= found.size:
            return None
        return problem("reserved_stockout").status

    def _reservation(self, wanted: Wanted) -> Reservation:
        place, _, last = wanted.reservation.rpartition("/reservations/")
        fitting = [
            one
            for one in self.reservations.values()
            if one.name.startswith(f"{place}/reservations/")
            and last in ("-", names.last(one.name))
            and accelerators.catalogue()[one.accelerator_type].generation == wanted.accelerator.generation
        ]
        if not fitting:
            raise problem("no_reservation")
        return max(fitting, key=lambda one: one.size - self.taken(one.name))

    def _occupants(self) -> Iterator[Node]:
        """Nodes that take up room: not those that have none yet and will not get it."""
        for node in self._nodes.all():
            running = self._operations.running_on(node.name)
            doomed = running is not None and running.verb in ("create", "start") and running.fault
            if node.state not in VACANT and not doomed:
                yield node

    def _holders(self) -> Iterator[Wanted]:
        """Everything that counts in quotas: queued resources, and nodes without one."""
        for queued in self._queued.all():
            yield from wanted_in(queued)
        for node in self._nodes.all():
            if not self._queued.get(node.queued_resource):
                yield wanted_by(node)


def wanted_by(node: Node) -> Wanted:
    """Return what a node asks for."""
    return Wanted(
        names.parent(node.name), node.accelerator_type, 1, node.preemptible, _reservation_asked(node)
    )


def wanted_in(queued: QueuedResource) -> Iterable[Wanted]:
    """Return what a queued resource asks for, by parent, type and tier."""
    counts: dict[tuple[str, str, bool], int] = {}
    for name, spec in queued.nodes.items():
        scheduling = spec.get("schedulingConfig", {})
        preemptible = bool(scheduling.get("spot") or scheduling.get("preemptible"))
        key = names.parent(name), spec["acceleratorType"], preemptible
        counts[key] = counts.get(key, 0) + 1
    return [
        Wanted(parent, kind, count, preemptible, queued.reservation)
        for (parent, kind, preemptible), count in counts.items()
    ]


def _reservation_asked(node: Node) -> str:
    """A node asks for any reservation of its project and zone: the API has no field to name one."""
    if node.reservation:
        return node.reservation
    reserved = node.spec.get("schedulingConfig", {}).get("reserved")
    return f"{names.parent(node.name)}/reservations/-" if reserved else ""
