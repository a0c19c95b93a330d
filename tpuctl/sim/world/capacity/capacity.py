"""Limits the nodes of each zone. Stockouts that a fault injects are in sim/world/injected_faults.py."""

from __future__ import annotations

from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Status, api_error
from tpuctl.sim.world.capacity import demand as demands
from tpuctl.sim.world.capacity.demand import Demand
from tpuctl.sim.world.capacity.quotas import Quotas
from tpuctl.sim.world.capacity.reservations import Reservations
from tpuctl.sim.world.state import State


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
