"""Defines the records of a queued resource: a request for nodes that waits until there is capacity.

- Decides whether a node can be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tpuctl.errors import PreemptedError, StateError, TpuctlError
from tpuctl.nodes.node import Node, NodeId, NodeRequest, NodeState
from tpuctl.nodes.owner import Owned


class QueueState(StrEnum):
    """What a queued resource is doing; each provider maps its own states to these."""

    WAITING = "WAITING"
    """Has no nodes yet, and gets them without anybody's help once there is capacity."""
    PROVISIONING = "PROVISIONING"
    """Its nodes are being created."""
    ACTIVE = "ACTIVE"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    """Has lost a node, for instance to a preemption; takes quota until it is deleted."""
    FAILED = "FAILED"
    """Gets no nodes any more."""
    DELETING = "DELETING"
    UNKNOWN = "UNKNOWN"

    @property
    def is_over(self) -> bool:
        """Whether it gives nobody a node any more, and is left to be deleted."""
        return self in (QueueState.SUSPENDING, QueueState.SUSPENDED, QueueState.FAILED)


@dataclass(frozen=True)
class QueuedResourceId:
    """Which queued resource."""

    provider: str
    project: str
    zone: str
    name: str


@dataclass(frozen=True)
class QueuedResource(Owned):
    """One queued resource, and what it was to become."""

    id: QueuedResourceId
    state: QueueState
    provider_state: str
    """The provider's own name of the state, to be shown."""
    nodes: tuple[NodeId, ...]
    """The nodes it makes, also before they exist; one for each slice."""
    accelerator: str
    runtime: str
    created: str
    """ISO-8601, UTC."""
    spot: bool = False
    reservation: str = ""
    valid_until: str = ""
    """ISO-8601, UTC: it fails if there is no capacity until then; empty for no limit."""
    initiator: str = ""
    """Who brought it into its state: `USER`, `SERVICE`, or empty where the provider does not say."""
    error: str = ""
    """Why it failed, in the provider's words."""
    error_kind: str = ""
    """What that means, as errors say it: `quota`, `stockout` ..."""
    error_hint: str = ""
    """The next command after it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of its nodes."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """That of its nodes."""
    created_at: float = 0.0
    """`created` in seconds since 1970, with their fractions: says which of two was first."""
    failure: TpuctlError | None = field(default=None, compare=False)
    """Why it failed, as an error to raise."""

    @property
    def is_preempted(self) -> bool:
        """Whether the provider took back a node of it, which ends the others, too."""
        is_suspended = self.state in (QueueState.SUSPENDING, QueueState.SUSPENDED)
        return is_suspended and self.initiator == "SERVICE"


@dataclass(frozen=True)
class QueuedResourceList:
    """The queued resources of one zone or of all zones."""

    queued_resources: tuple[QueuedResource, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer: their queued resources are missing from the list."""


@dataclass(frozen=True)
class QueuedResourceRequest:
    """The queued resource to create."""

    id: QueuedResourceId
    node: NodeRequest
    """Its node, or the pattern of its nodes: slice I of several is called `NAME-I`."""
    slices: int = 1
    reservation: str = ""
    """Name of a reservation, alone or with its project and zone as the provider writes it."""
    valid_until: str = ""
    """ISO-8601, UTC: the provider gives up then; empty for no limit."""
    request_id: str = ""
    """A UUID by which the provider knows a repeated request; empty for a request that is sent once."""


REPLACEMENT = "terraform apply -replace=ADDRESS"
"""Replaces a node of Terraform's that never runs again."""
REPLACED_BY_TERRAFORM = (
    f"Terraform keeps it: run '{REPLACEMENT}', with the ADDRESS of google_tpu_v2_vm that "
    "'terraform state list' prints."
)


def require_ready(node: Node) -> Node:
    """Return a node that is READY, with all of its hosts; raises PreemptedError or StateError for others."""
    missing = require_running(node).missing_hosts
    if missing:
        raise StateError(
            f"Node '{node.name}' is {node.provider_state}, but {missing}.",
            hint=f"Wait for {'them' if node.hosts > 1 else 'it'}: tpuctl wait {node.name}",
        )
    return node


def require_running(node: Node) -> Node:
    """Return a node that is READY, though hosts may be missing in the provider's answer; raises as above."""
    if node.state is NodeState.PREEMPTED:
        raise PreemptedError(
            f"Node '{node.name}' is {node.provider_state}.",
            hint=REPLACED_BY_TERRAFORM
            if node.is_kept_by_terraform
            else f"Delete it ('tpuctl down {node.name}') and create it again.",
        )
    if node.state in (NodeState.STOPPING, NodeState.STOPPED) and not node.spot:
        raise StateError(
            f"Node '{node.name}' is {node.provider_state}.", hint=f"Start it again: tpuctl start {node.name}"
        )
    if node.state is not NodeState.READY:
        raise StateError(f"Node '{node.name}' is {node.provider_state}.", hint=_next_step(node))
    return node


def _next_step(node: Node) -> str:
    if node.state.becomes_ready:
        return f"Wait until it is READY: tpuctl wait {node.name}"
    return f"What happened: tpuctl why {node.name}"
