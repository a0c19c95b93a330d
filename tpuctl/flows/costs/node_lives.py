"""Finds when nodes billed: those that exist, and those whose end the provider still remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tpuctl.nodes import History, Node, PastChange

CREATED, STOPPED, STARTED, DELETED = "create", "stop", "start", "delete"
"""Verbs of the provider."""
Span = tuple[str, str]
"""Begin and end, ISO-8601, UTC, which sort as text."""


@dataclass(frozen=True)
class NodeLife:
    """When the chips of one node billed, as far as that is known."""

    node: Node
    spans: tuple[Span, ...]
    """In order: time in which it was stopped is between them."""
    open_since: str = ""
    """Since when it billed to an end that nobody remembers; empty where every end is known."""
    goes_on: bool = False
    """Whether the node bills now."""

    def billed(self, used: Iterable[Span]) -> list[Span]:
        """Return when it billed: where nobody remembers its end, at least to that of the last `used` span."""
        last = max((end for _, end in used), default="")
        return [*self.spans, *([(self.open_since, last)] if "" < self.open_since < last else [])]

    def until(self, end: str) -> NodeLife:
        """Return the life of a node that Google took back at `end`, of which it has no operation."""
        spans = tuple((begin, min(last, end)) for begin, last in self.spans if begin < end)
        return replace(self, spans=spans, goes_on=False)


def without(spans: Iterable[Span], used: Iterable[Span]) -> Iterator[Span]:
    """Yield what is in one of the spans, and in none of the `used` ones."""
    busy = sorted(used)
    for begin, end in spans:
        for used_begin, used_end in busy:
            if used_begin < end and used_end > begin:
                if begin < used_begin:
                    yield begin, used_begin
                begin = max(begin, used_end)
        if begin < end:
            yield begin, end


def lives(existing: Sequence[Node], history: History, now: str) -> list[NodeLife]:
    """Return the life of each node that exists, or that the provider remembers to have made."""
    changes = [change for change in history.changes if not change.of_queued_resource and not change.error]
    created = {
        change.node.id.uid: change.node
        for change in changes
        if change.verb == CREATED and change.node and change.node.created
    }
    known = created | {node.id.uid: node for node in existing if node.created}
    present = {node.id.uid for node in existing}
    return [
        _life(node, _changes_of(node, changes, known.values()), now, exists=node.id.uid in present)
        for node in known.values()
    ]


def _changes_of(node: Node, changes: Sequence[PastChange], known: Iterable[Node]) -> list[PastChange]:
    """Return the changes of a node, and of none that had its name before or after."""
    later = (
        other.created
        for other in known
        if (other.zone, other.name) == (node.zone, node.name) and other.created > node.created
    )
    end = min(later, default="9")
    return [
        change
        for change in changes
        if (change.zone, change.name) == (node.zone, node.name) and node.created <= change.began < end
    ]


def _life(node: Node, changes: Sequence[PastChange], now: str, *, exists: bool) -> NodeLife:
    spans, begin = list[Span](), node.created
    for change in changes:
        moment = change.ended or change.began
        if change.verb in (STOPPED, DELETED) and begin and change.ended:
            spans.append((begin, moment))
            begin = ""
        elif change.verb == CREATED or (change.verb == STARTED and not begin):
            begin = moment
    if not begin:
        return NodeLife(node, tuple(spans))
    if exists and node.state.bills:
        return NodeLife(node, (*spans, (begin, now)), goes_on=True)
    return NodeLife(node, tuple(spans), open_since=begin)
