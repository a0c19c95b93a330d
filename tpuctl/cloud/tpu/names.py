"""Builds and parses resource names of the Cloud TPU API.

The only such code of the client; the simulator has its own, `tpuctl/sim/resource_names.py`.
"""

from __future__ import annotations

from tpuctl.nodes import CLOUD_TPU, NodeId

EVERY_ZONE = "-"


def location(project: str, zone: str) -> str:
    """Return `projects/P/locations/Z`."""
    return f"projects/{project}/locations/{zone}"


def node_name(node: NodeId) -> str:
    """Return `projects/P/locations/Z/nodes/N`."""
    return f"{location(node.project, node.zone)}/nodes/{node.name}"


def parse_node_name(name: str, uid: str) -> NodeId:
    """Return the identity of the node called `projects/P/locations/Z/nodes/N`; raises ValueError."""
    match name.split("/"):
        case ["projects", project, "locations", zone, "nodes", node]:
            return NodeId(CLOUD_TPU, project, zone, node, uid)
    raise ValueError(f"'{name}' is not the name of a node.")


def zone_of(location: str) -> str:
    """Return the zone of `projects/P/locations/Z`."""
    return location.rpartition("/")[2]
