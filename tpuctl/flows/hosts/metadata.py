"""Changes the metadata of a node, which other clients may change at the same time."""

from __future__ import annotations

from collections.abc import Callable

from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConflictError
from tpuctl.nodes import Node, UpdateNode
from tpuctl.polling import NO_PAUSE, retry

TIMEOUT = 120.0
ATTEMPTS = 8
"""The metadata is replaced as a whole: of two clients at once, one's change is lost, and made again."""


def change_metadata(
    provider: Provider, node: Node, change_of: Callable[[Node], UpdateNode | None], purpose: str
) -> Node:
    """Change a node until it has what `change_of` wants of it, and return it so.

    `change_of` returns None for a node that needs no change. What other clients change stays. `purpose`
    completes "Waited 120 s for Node 'n1' ...". Raises ConflictError after too many changes by others.
    """

    def merge() -> Node:
        nonlocal node
        change = change_of(node)
        if change is None:
            return node
        provider.begin(change).wait(purpose, TIMEOUT)
        node = provider.get_node(node.id)
        if change_of(node):
            raise ConflictError(
                f"The metadata of '{node.name}' is being changed by another client.", hint="Try again."
            )
        return node

    return retry(merge, on=ConflictError, attempts=ATTEMPTS, backoff=NO_PAUSE)
