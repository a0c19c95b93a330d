"""Maps the states of nodes in the Cloud TPU API to tpuctl's."""

from __future__ import annotations

from collections.abc import Mapping

from google.cloud import tpu_v2

from tpuctl.nodes import NodeState

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


def state_name(state: int) -> str:
    """Return the API's name of a state, and its number when this client does not know it."""
    try:
        return str(tpu_v2.Node.State(state).name)
    except ValueError:
        return str(state)
