"""Decides whether a node can be used."""

from __future__ import annotations

from tpuctl.errors import PreemptedError, StateError
from tpuctl.nodes.node import Node, NodeState

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
