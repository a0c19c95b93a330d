"""Limits the nodes of each zone. Stockouts that a fault injects are in sim/world/injected_faults.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpuctl import accelerators
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Status, api_error, quota_exceeded
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.capacity import demand as demands
from tpuctl.sim.world.capacity.demand import Demand
from tpuctl.sim.world.capacity.reservations import Reservations
from tpuctl.sim.world.state import State

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
            for node in demands.nodes_with_capacity(self._state)
            if node.accelerator_type == accelerator_type
            and not node.reservation
            and names.parse(node.name).zone == zone
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
            yield from demands.of_queued_resource(queued)
        for node in self._state.nodes.all():
            if not self._state.queued_resources.get(node.queued_resource):
                yield demands.of_node(node)


def quotas_of(demand: Demand) -> list[Quota]:
    """Return the quotas that a demand counts in."""
    places = {"zone": demand.zone, "region": accelerators.region(demand.zone)}
    stem = QUOTAS[demand.accelerator.generation, demand.accelerator.hosts > 1][demand.preemptible]
    return [(demand.project, place, stem + SCOPES[scope]) for scope, place in places.items()]
