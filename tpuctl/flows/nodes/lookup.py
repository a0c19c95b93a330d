"""Finding and deleting nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuctl.errors import DeadlineError, NotFoundError, PreemptedError, StateError, nearest
from tpuctl.flows.progress import Tell
from tpuctl.nodes import GONE, Node
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.tpu import Operation, TpuApi

DELETE_TIMEOUT = 900.0


def plan_down(tpu: TpuApi, names: Sequence[str], owner: str) -> list[Node]:
    """Return the nodes to delete: those named, or all that tpuctl made for `owner`, in every zone.

    Raises NotFoundError for a name that is nowhere, DeadlineError when a zone did not answer.
    """
    listing = tpu.nodes()
    if names:
        by_name = {node.name: node for node in listing.nodes}
        missing = [name for name in names if name not in by_name]
        if missing and not listing.unreachable:
            raise NotFoundError(
                f"There is no node '{missing[0]}'.",
                hint=_did_you_mean(missing[0], list(by_name)),
                nodes=missing,
            )
        chosen = [by_name[name] for name in names if name in by_name]
    else:
        chosen = [node for node in listing.nodes if node.managed and node.owner == owner]
    if listing.unreachable and (not names or missing):
        raise DeadlineError(
            f"No answer from {', '.join(listing.unreachable)}: something there may go on billing.",
            hint="Try again in a minute.",
        )
    return chosen


def down(tpu: TpuApi, nodes: Sequence[Node], tell: Tell) -> None:
    """Delete nodes, all at once, and return when the API says that each is gone."""

    def one(node: Node) -> None:
        try:
            operation = tpu.delete(node)
        except (NotFoundError, StateError):
            operation = None  # somebody deletes it already: the wait below decides
        poll(
            lambda: _gone(tpu, node, operation),
            awaiting=f"node '{node.name}' to be deleted",
            timeout=DELETE_TIMEOUT,
            hint="Run 'tpuctl down' again.",
        )
        tell(f"deleted {node.name}")

    values(fanout(one, nodes))


def find_ready(tpu: TpuApi, name: str | None, accelerator: str | None, owner: str) -> Node:
    """Return the node to use: the one named, else the user's only READY one of the type."""
    nodes = tpu.nodes().nodes
    if name:
        named = [node for node in nodes if node.name == name]
        if not named:
            hint = _did_you_mean(name, [node.name for node in nodes])
            raise NotFoundError(f"There is no node '{name}'.", hint=hint, node=name)
        return require_ready(named[0])
    fitting = [
        node for node in nodes
        if node.managed and node.owner == owner and accelerator in (None, node.accelerator)
    ]  # fmt: skip
    ready = [node for node in fitting if node.state == "READY"]
    if len(ready) > 1:
        names = ", ".join(node.name for node in ready)
        raise StateError(f"Several nodes fit: {names}.", hint="Choose one with --tpu NAME.")
    if ready:
        return ready[0]
    if fitting:
        return require_ready(fitting[0])
    raise StateError(
        f"There is no {accelerator or 'TPU'} to run on.",
        hint=f"Create one: tpuctl up {accelerator or 'v3-8'}",
    )


def require_ready(node: Node) -> Node:
    if node.state in GONE:
        raise PreemptedError(
            f"Node '{node.name}' is {node.state}.",
            hint=f"Delete it ('tpuctl down {node.name}') and create it again.",
        )
    if node.state != "READY":
        raise StateError(f"Node '{node.name}' is {node.state}.", hint="'tpuctl ls' shows when it is READY.")
    return node


def _gone(tpu: TpuApi, node: Node, operation: Operation | None) -> bool | None:
    if operation and not tpu.finished(operation):
        return None
    try:
        found = tpu.node(node.zone, node.name)
    except NotFoundError:
        return True
    return True if found.uid != node.uid else None


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = nearest(name, known)
    if close:
        return f"Did you mean {close[0]}?"
    return f"There are: {', '.join(known)}." if known else "There are none."
