"""Changes the metadata of a node, which other clients may change at the same time."""

from __future__ import annotations

from collections.abc import Callable

from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConflictError
from tpuctl.nodes import Node, UpdateNode
from tpuctl.polling import retry

TIMEOUT = 120.0
"""Seconds for one change, and for all attempts: of two clients at once, one's change is refused or lost."""


def change_metadata(
    provider: Provider, node: Node, change_of: Callable[[Node], UpdateNode | None], purpose: str
) -> Node:
    """Change a node until it has what `change_of` wants of it, and return it so.

    `change_of` returns None for a node that needs no change. The metadata is replaced as a whole: it is read
    right before, and what other clients change stays. `purpose` completes "Waited 120 s for Node 'n1' ...".
    Raises ConflictError where others change it all the time.
    """
    if change_of(node) is None:
        return node

    def merge() -> Node:
        change = change_of(current := provider.get_node(node.id))
        if change is None:
            return current
        provider.begin(change).wait(purpose, TIMEOUT)
        changed = provider.get_node(node.id)
        if change_of(changed):
            raise ConflictError(
                f"The metadata of '{node.name}' is being changed by another client.", hint="Try again."
            )
        return changed

    return retry(merge, on=ConflictError, timeout=TIMEOUT)
