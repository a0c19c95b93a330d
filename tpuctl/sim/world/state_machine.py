"""Defines the states of nodes and queued resources: allowed calls, and the states that may follow."""

from __future__ import annotations

from dataclasses import dataclass

MAINTENANCE = ("simulate maintenance event", "perform maintenance")

NODE_ALLOWED: dict[str, frozenset[str]] = {
    # that a node can be deleted while it is being created is ours: no source was found
    "CREATING": frozenset({"delete", "preempt"}),
    "READY": frozenset({"delete", "preempt", "update", "stop", "get guest attributes", *MAINTENANCE}),
    "STOPPING": frozenset(),
    "STOPPED": frozenset({"delete", "update", "start"}),
    "STARTING": frozenset(),
    "DELETING": frozenset(),
    "REPAIRING": frozenset({"delete", "preempt"}),
    "PREEMPTED": frozenset({"delete"}),
    "TERMINATED": frozenset({"delete"}),
}
"""State of a node -> calls that it allows, besides get and list."""

LOST = frozenset({"PREEMPTED", "TERMINATED"})
"""States in which only the record of a node is left, until it is deleted."""

VACANT = LOST | {"STOPPED"}
"""States in which a node uses no capacity."""


@dataclass(frozen=True)
class Transition:
    """The state of a node during and after a long-running operation; None: unchanged, or deleted."""

    method: str
    during: str | None
    after: str | None


NODE_TRANSITIONS: dict[str, Transition] = {
    "create": Transition("CreateNode", "CREATING", "READY"),
    "delete": Transition("DeleteNode", "DELETING", None),
    "update": Transition("UpdateNode", None, None),
    "stop": Transition("StopNode", "STOPPING", "STOPPED"),
    "start": Transition("StartNode", "STARTING", "READY"),
    "simulateMaintenanceEvent": Transition("SimulateMaintenanceEvent", None, None),
    # that a node under maintenance is REPAIRING is ours: no source was found
    "performMaintenance": Transition("PerformMaintenance", "REPAIRING", "READY"),
}
"""Verb of an operation, as its metadata shows it -> its method and states."""

CANCELLABLE = frozenset({"create"})
"""Verbs whose operation on a node can be cancelled; others run to their end (which operations Google's API
can cancel is not documented)."""

QUEUED_RESOURCE_ALLOWED: dict[str, frozenset[str]] = {
    "CREATING": frozenset({"delete", "force delete"}),
    "ACCEPTED": frozenset({"delete", "force delete"}),
    "WAITING_FOR_RESOURCES": frozenset({"delete", "force delete"}),
    "PROVISIONING": frozenset({"force delete"}),
    "ACTIVE": frozenset({"force delete", "reset", "perform maintenance"}),
    "SUSPENDING": frozenset({"force delete"}),
    "SUSPENDED": frozenset({"delete", "force delete", "reset"}),
    "FAILED": frozenset({"delete", "force delete", "reset"}),
    "DELETING": frozenset(),
}
"""State of a queued resource -> calls that it allows, besides get and list. Delete is as the
comment on `force` in google/cloud/tpu/v2/cloud_tpu.proto says: without it in ACCEPTED, FAILED and SUSPENDED,
and whenever there are no nodes (as in CREATING and WAITING_FOR_RESOURCES). In which states a queued resource
can be reset is ours: no source was found."""

QUEUED_RESOURCE_NEXT: dict[str, frozenset[str]] = {
    "CREATING": frozenset({"ACCEPTED", "DELETING"}),
    "ACCEPTED": frozenset({"WAITING_FOR_RESOURCES", "PROVISIONING", "FAILED", "DELETING"}),
    "WAITING_FOR_RESOURCES": frozenset({"PROVISIONING", "FAILED", "DELETING"}),
    "PROVISIONING": frozenset({"ACTIVE", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDING", "DELETING"}),
    "ACTIVE": frozenset({"SUSPENDING", "DELETING"}),
    "SUSPENDING": frozenset({"SUSPENDED", "ACCEPTED", "DELETING"}),
    "SUSPENDED": frozenset({"SUSPENDING", "DELETING"}),
    "FAILED": frozenset({"SUSPENDING", "DELETING"}),
    "DELETING": frozenset(),
}
"""State of a queued resource -> the states that may follow. SUSPENDING leads back to ACCEPTED in a reset."""

SERVING = frozenset({"READY", "STOPPING", "STOPPED", "STARTING", "REPAIRING"})
"""States of the nodes of an ACTIVE queued resource."""
