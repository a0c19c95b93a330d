"""Builds and parses resource names of the Cloud TPU API.

The only such code of the client; the simulator has its own, `tpuctl/sim/resource_names.py`.
"""

from __future__ import annotations

import re

from tpuctl.nodes import CLOUD_TPU, NodeId, QueuedResourceId

EVERY_ZONE = "-"
RESERVATION = re.compile(
    r"-|[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    r"|(projects|folders|organizations)/[a-z0-9.:-]+/locations/(?P<zone>[a-z0-9-]+)/reservations/[-a-z0-9]+"
)
"""A reservation, alone or in full; `-` is any that fits."""
RESERVATION_FORM = "projects/PROJECT/locations/ZONE/reservations/NAME"


def project_name(project: str) -> str:
    """Return `projects/P`."""
    return f"projects/{project}"


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


def queued_resource_name(queued_resource: QueuedResourceId) -> str:
    """Return `projects/P/locations/Z/queuedResources/Q`."""
    parent = location(queued_resource.project, queued_resource.zone)
    return f"{parent}/queuedResources/{queued_resource.name}"


def parse_queued_resource_name(name: str) -> QueuedResourceId:
    """Return the identity of what is called `projects/P/locations/Z/queuedResources/Q`; raises ValueError."""
    match name.split("/"):
        case ["projects", project, "locations", zone, "queuedResources", queued_resource]:
            return QueuedResourceId(CLOUD_TPU, project, zone, queued_resource)
    raise ValueError(f"'{name}' is not the name of a queued resource.")


def reservation_name(reservation: str, project: str, zone: str) -> str:
    """Return `projects/P/locations/Z/reservations/R` for R or for the full name."""
    return reservation if "/" in reservation else f"{location(project, zone)}/reservations/{reservation}"


def zone_of(location: str) -> str:
    """Return the zone of `projects/P/locations/Z`."""
    return location.rpartition("/")[2]
