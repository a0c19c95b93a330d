"""What the simulated Cloud TPU API is about, free of any protocol: nodes, operations, what zones offer."""

from __future__ import annotations

from tpuctl.sim.world.events import Event
from tpuctl.sim.world.problems import Code, Problem, Status, problem, rule
from tpuctl.sim.world.resources import Node, Operation
from tpuctl.sim.world.world import World

__all__ = ["Code", "Event", "Node", "Operation", "Problem", "Status", "World", "problem", "rule"]
