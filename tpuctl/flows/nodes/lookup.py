"""Finds the node that a command means."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.cloud.provider import Provider
from tpuctl.errors import NotFoundError, PreemptedError, StateError, nearest
from tpuctl.nodes import Node, NodeId, NodeState


def find_node(provider: Provider, node: NodeId) -> Node | None:
    """Return a node, or None when the provider says that it does not exist."""
    try:
        return provider.get_node(node)
    except NotFoundError:
        return None


def node_state(provider: Provider, node: NodeId) -> NodeState:
    """Return what a node is doing; GONE when it does not exist, or its name is another node's now."""
    existing = find_node(provider, node)
    return existing.state if existing else NodeState.GONE


def require_ready(node: Node) -> Node:
    """Return a node that is READY; raises PreemptedError or StateError for any other."""
    if node.state is NodeState.PREEMPTED:
        raise PreemptedError(
            f"Node '{node.name}' is {node.provider_state}.",
            hint=f"Delete it ('tpuctl down {node.name}') and create it again.",
        )
    if node.state is not NodeState.READY:
        raise StateError(
            f"Node '{node.name}' is {node.provider_state}.", hint="'tpuctl ls' shows when it is READY."
        )
    return node


def find_ready(provider: Provider, name: str | None, accelerator: str | None, owner: str) -> Node:
    """Return the node to use: the one named, else the user's only READY one of the type."""
    nodes = provider.list_nodes().nodes
    if name:
        return require_ready(_named(nodes, name))
    candidates = [node for node in owned_by(nodes, owner) if accelerator in (None, node.accelerator)]
    ready = [node for node in candidates if node.state is NodeState.READY]
    if len(ready) > 1:
        names = ", ".join(node.name for node in ready)
        raise StateError(f"Several nodes fit: {names}.", hint="Choose one with --tpu NAME.")
    if ready:
        return ready[0]
    if candidates:
        return require_ready(candidates[0])
    raise StateError(
        f"There is no {accelerator or 'TPU'} to run on.",
        hint=f"Create one: tpuctl up {accelerator or 'v3-8'}",
    )


def owned_by(nodes: Sequence[Node], owner: str) -> list[Node]:
    """Return the nodes that tpuctl created for a user."""
    return [node for node in nodes if node.managed and node.owner == owner]


def no_such_node(names: Sequence[str], nodes: Sequence[Node]) -> NotFoundError:
    """Return the error for names that no node has; suggests the nearest name."""
    existing = [node.name for node in nodes]
    close = nearest(names[0], existing)
    if close:
        hint = f"Did you mean {close[0]}?"
    else:
        hint = f"Existing nodes: {', '.join(existing)}." if existing else "There are no nodes."
    return NotFoundError(f"There is no node '{names[0]}'.", hint=hint, nodes=list(names))


def _named(nodes: Sequence[Node], name: str) -> Node:
    for node in nodes:
        if node.name == name:
            return node
    raise no_such_node([name], nodes)
