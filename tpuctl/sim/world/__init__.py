"""What the simulated Cloud TPU API is about, free of any protocol: nodes, queued resources, operations."""

from __future__ import annotations

from tpuctl.sim.events import Event
from tpuctl.sim.world.api_errors import Code, Problem, Status, problem
from tpuctl.sim.world.capacity.supply import Reservation
from tpuctl.sim.world.resources import Asked, Node, Operation, QueuedResource
from tpuctl.sim.world.world import World

__all__ = [
    "Asked",
    "Code",
    "Event",
    "Node",
    "Operation",
    "Problem",
    "QueuedResource",
    "Reservation",
    "Status",
    "World",
    "problem",
]
