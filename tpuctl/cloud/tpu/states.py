"""Maps the states of nodes and queued resources in the Cloud TPU API to tpuctl's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from tpuctl.nodes import NodeState, QueueState

STATES: Mapping[str, NodeState] = {
    "CREATING": NodeState.CREATING,
    "STARTING": NodeState.STARTING,
    "RESTARTING": NodeState.STARTING,
    "REIMAGING": NodeState.STARTING,
    "UNHIDING": NodeState.STARTING,
    "READY": NodeState.READY,
    "REPAIRING": NodeState.REPAIRING,
    "STOPPING": NodeState.STOPPING,
    "HIDING": NodeState.STOPPING,
    "STOPPED": NodeState.STOPPED,
    "HIDDEN": NodeState.STOPPED,
    "PREEMPTED": NodeState.PREEMPTED,
    "TERMINATED": NodeState.PREEMPTED,  # by maintenance, or at the end of a preemptible node's life
    "DELETING": NodeState.DELETING,
}
"""Any other state, also one that the API gets later, is UNKNOWN."""
SPOT_STATES = {**STATES, "STOPPED": NodeState.PREEMPTED}
"""Of a spot or preemptible node: nobody can start it again, and Google does not always say PREEMPTED."""

QUEUE_STATES: Mapping[str, QueueState] = {
    "CREATING": QueueState.WAITING,
    "ACCEPTED": QueueState.WAITING,
    "WAITING_FOR_RESOURCES": QueueState.WAITING,
    "PROVISIONING": QueueState.PROVISIONING,
    "ACTIVE": QueueState.ACTIVE,
    "SUSPENDING": QueueState.SUSPENDING,
    "SUSPENDED": QueueState.SUSPENDED,
    "FAILED": QueueState.FAILED,
    "DELETING": QueueState.DELETING,
}
"""Any other state is UNKNOWN."""


def enum_name(enum: type[IntEnum], value: int) -> str:
    """Return the API's name of a value, and its number when this client does not know it."""
    try:
        return enum(value).name
    except ValueError:
        return str(value)
