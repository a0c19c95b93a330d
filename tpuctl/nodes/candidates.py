"""Marks the nodes that one search for capacity may create in several zones, so that all but one are ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from tpuctl.nodes.history import CreateNode, Creation

RACE_LABEL = "tpuctl-race"
"""The same on every candidate of an owner's searches in several zones; of one name only one stays.

It does not depend on the zones: two searches with some zones in common are to make one TPU, too.
"""


def race_id(owner: str) -> str:
    """Return the label's value for an owner's searches in several zones."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def race_of(labels: Mapping[str, str]) -> str:
    """Return which search created what has these labels; empty for one in a single zone."""
    return labels.get(RACE_LABEL, "")


def as_candidate(creation: Creation, race: str) -> Creation:
    """Return a creation of which the node, or each node of the queued resource, belongs to a search."""
    if isinstance(creation, CreateNode):
        return CreateNode(
            structs.replace(creation.request, labels={**creation.request.labels, RACE_LABEL: race})
        )
    node = creation.request.node
    labelled = structs.replace(node, labels={**node.labels, RACE_LABEL: race})
    return replace(creation, request=replace(creation.request, node=labelled))


def labels_in(creation: Creation) -> Mapping[str, str]:
    """Return the labels of what is created."""
    node = creation.request if isinstance(creation, CreateNode) else creation.request.node
    return node.labels


def race_in(creation: Creation) -> str:
    """Return which search a creation belongs to; empty for one in a single zone."""
    return race_of(labels_in(creation))
