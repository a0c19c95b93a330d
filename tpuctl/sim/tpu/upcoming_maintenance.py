"""Adds announced maintenance to nodes in v2's JSON: the live v2 has it, this client's messages do not."""

from __future__ import annotations

from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.world import World


def add_to(answer: JsonObject, world: World) -> None:
    """Add `upcomingMaintenance` to an answer that is a node, or to each of its nodes, if announced."""
    listed = answer.get("nodes", [answer])
    for node in listed if isinstance(listed, list) else ():
        name = str(node.get("name", ""))
        maintenance = world.nodes.get(name).maintenance if world.nodes.has(name) else None
        if maintenance:
            node["upcomingMaintenance"] = dict(maintenance)
