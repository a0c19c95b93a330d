"""Deletes nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, NotFoundError, StateError
from tpuctl.flows.nodes.lookup import find_node, no_such_node, owned_by
from tpuctl.flows.progress import Report
from tpuctl.nodes import DeleteNode, HttpRequest, Node, NodeList
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

TIMEOUT = 900.0
HINT = "Run 'tpuctl down' again."


def plan_down(provider: Provider, names: Sequence[str], owner: str) -> list[Node]:
    """Return the nodes to delete: those named, or all that tpuctl created for `owner`, in every zone.

    Raises NotFoundError for a name that no node has, DeadlineError when a zone did not answer.
    """
    listing = provider.list_nodes()
    if names:
        return _named(listing, names)
    _require_every_zone(listing)
    return owned_by(listing.nodes, owner)


def requests(provider: Provider, nodes: Sequence[Node]) -> list[HttpRequest]:
    """Return the requests that `down` sends, for --dry-run."""
    return [provider.http_request(DeleteNode(node.id)) for node in nodes]


def down(provider: Provider, nodes: Sequence[Node], report: Report) -> None:
    """Delete nodes, all at once, and return when the provider says that each one is gone."""
    values(fanout(lambda node: _delete(provider, node, report), nodes))


def _named(listing: NodeList, names: Sequence[str]) -> list[Node]:
    by_name = {node.name: node for node in listing.nodes}
    missing = [name for name in names if name not in by_name]
    if missing:
        _require_every_zone(listing)
        raise no_such_node(missing, listing.nodes)
    return [by_name[name] for name in names]


def _require_every_zone(listing: NodeList) -> None:
    if listing.unreachable:
        raise DeadlineError(
            f"No answer from {', '.join(listing.unreachable)}: nodes there may continue to bill.",
            hint="Try again in a minute.",
        )


def _delete(provider: Provider, node: Node, report: Report) -> None:
    try:
        operation = provider.begin(DeleteNode(node.id))
    except (NotFoundError, StateError):
        pass  # another client deletes it already
    else:
        operation.wait("to be deleted", TIMEOUT, hint=HINT)
    poll(
        lambda: True if find_node(provider, node.id) is None else None,
        awaiting=f"node '{node.name}' to be deleted",
        timeout=TIMEOUT,
        hint=HINT,
    )
    report(f"deleted {node.name}")
