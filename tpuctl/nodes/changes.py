"""Defines the changes that a provider carries out; `--dry-run` shows them, `Provider.begin` sends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.nodes.node import Node, NodeId, NodeRequest
from tpuctl.nodes.queued_resources import QueuedResourceId, QueuedResourceRequest


@dataclass(frozen=True)
class CreateNode:
    """Create a node; never repeated, since the provider could not tell a repeated request from a second."""

    request: NodeRequest


@dataclass(frozen=True)
class DeleteNode:
    """Delete a node."""

    node: NodeId


@dataclass(frozen=True)
class StopNode:
    """Stop a node of one host: its disk stays, its chips do not bill."""

    node: NodeId


@dataclass(frozen=True)
class StartNode:
    """Start a stopped node."""

    node: NodeId


@dataclass(frozen=True)
class UpdateNode:
    """Replace the labels or the metadata of a node, each as a whole; None leaves them."""

    node: Node
    labels: Mapping[str, str] | None = None
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SimulateMaintenance:
    """Let a node and its hosts live through a maintenance that is only played."""

    node: NodeId
    worker: int
    """The host that gets the notice."""


@dataclass(frozen=True)
class CreateQueuedResource:
    """Queue a request for nodes."""

    request: QueuedResourceRequest


@dataclass(frozen=True)
class DeleteQueuedResource:
    """Delete a queued resource; with `force` also its nodes, without it one that has none."""

    queued_resource: QueuedResourceId
    force: bool = True


LastingChange = (
    CreateNode | DeleteNode | StopNode | StartNode | UpdateNode | CreateQueuedResource | DeleteQueuedResource
)
Change = LastingChange | SimulateMaintenance

Creation = CreateNode | CreateQueuedResource
"""What `up` begins with: nodes at once or an error, or a place in the queue."""
