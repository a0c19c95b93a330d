"""Holds the state of the simulated Cloud TPU, without any protocol: nodes, queued resources, operations.

`world`: receives every call. `nodes`: a node's calls and operations, preemptions included.
`queue`: how a queued resource becomes ACTIVE. `capacity`: quotas, stockouts, reservations.
`state`: the records that all of them share, and which call each state allows.
`api_errors`: every error in one table. `injected_faults`: injected errors and stockouts.
"""

from __future__ import annotations

from tpuctl.sim.events import Event
from tpuctl.sim.world.api_errors import ApiError, Code, Status, api_error
from tpuctl.sim.world.capacity.capacity import Reservation
from tpuctl.sim.world.resources import Node, Operation, QueuedResource, RequestContext
from tpuctl.sim.world.world import World

__all__ = [
    "ApiError",
    "Code",
    "Event",
    "Node",
    "Operation",
    "QueuedResource",
    "RequestContext",
    "Reservation",
    "Status",
    "World",
    "api_error",
]
