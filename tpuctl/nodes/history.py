"""Defines what a provider remembers, and what it announces: past changes and upcoming maintenance.

- Defines the changes that a provider carries out; `--dry-run` shows them, `Provider.begin` sends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.errors import TpuctlError
from tpuctl.nodes.node import Node, NodeId, NodeRequest
from tpuctl.nodes.queued_resources import QueuedResourceId, QueuedResourceRequest


@dataclass(frozen=True)
class PastChange:
    """A change of a node or of a queued resource, as the provider remembers it."""

    zone: str
    name: str
    """Of the node or the queued resource."""
    verb: str
    """The provider's word: `create`, `delete`, `stop` ..."""
    began: str
    """ISO-8601, UTC."""
    ended: str = ""
    """ISO-8601, UTC; empty while it runs."""
    of_queued_resource: bool = False
    error: TpuctlError | None = None
    """Why it failed."""
    node: Node | None = None
    """The node as the change left it, where the provider keeps that."""


@dataclass(frozen=True)
class History:
    """What the provider remembers, oldest first; for some days, it does not say how long."""

    changes: tuple[PastChange, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer: changes there are missing."""


@dataclass(frozen=True)
class Maintenance:
    """Work on the hosts of a node that the provider has announced."""

    kind: str
    """The provider's word: `SCHEDULED`, `UNSCHEDULED`."""
    status: str
    """The provider's word: `PENDING`, `ONGOING`."""
    begins: str
    """ISO-8601, UTC; empty where the provider does not say."""
    ends: str
    """ISO-8601, UTC; empty where the provider does not say."""
    can_reschedule: bool
    """Whether its user may have it done at another time."""


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
