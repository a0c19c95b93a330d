"""Stores the capacity that a project has reserved, and computes how much of it nodes use."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import ApiError, Status, api_error
from tpuctl.sim.world.capacity import demand as demands
from tpuctl.sim.world.capacity.demand import Demand
from tpuctl.sim.world.state import State


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
        nodes = demands.nodes_with_capacity(self._state)
        return sum(demands.of_node(node).units for node in nodes if node.reservation == name)

    def find(self, demand: Demand) -> Reservation:
        """Return the reservation that this demand would use, the emptiest that fits; raises NOT_FOUND."""
        parent, _, requested = demand.reservation.rpartition("/reservations/")
        fitting = [
            reservation
            for reservation in self.all(f"{parent}/reservations/")
            if requested in ("-", names.id_of(reservation.name))
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
