"""Reads and moves the end of a TPU's --ttl."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tpuctl import clock
from tpuctl.cloud.provider import Provider
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.hosts.metadata import change_metadata
from tpuctl.flows.nodes.inventory import Allocation
from tpuctl.flows.nodes.lookup import find_allocation
from tpuctl.flows.progress import Report
from tpuctl.host.keeper import records
from tpuctl.nodes import History, HttpRequest, Node, PastChange, QueuedResource, UpdateNode

A_SECOND = timedelta(seconds=1)
"""What times of operations leave out."""


@dataclass(frozen=True)
class Extension:
    """The moment to which `extend` moves the end of a TPU."""

    allocation: Allocation
    expires: datetime


def expiry_of(item: Node | QueuedResource) -> datetime | None:
    """Return when a node, or what a queued resource makes, ends; None for never, or not known.

    The time of a --ttl begins with the node: a queued resource has no end before its nodes exist. Metadata
    that is no time counts as none: the keeper says what is wrong with it.
    """
    created = item.created_at or None if isinstance(item, Node) else None
    try:
        moment = records.expiry(item.metadata, created)
        return None if moment is None else datetime.fromtimestamp(moment, UTC)
    except (ValueError, OverflowError):
        return None


def idle_limit(item: Node | QueuedResource) -> int:
    """Return the seconds without activity after which it ends by itself; 0 for no such end."""
    try:
        return records.idle_limit(item.metadata) or 0
    except ValueError:
        return 0


def expiry(allocation: Allocation) -> datetime | None:
    """Return when the first node of an allocation ends, which ends all of it; None for never."""
    moments = [moment for moment in map(expiry_of, allocation.nodes) if moment]
    return min(moments, default=None)


@dataclass(frozen=True)
class PastDeletion:
    """A deletion of a node that was to end by itself, as the provider remembers it."""

    node: Node
    """As it was when the provider last said."""
    began: str
    """ISO-8601, UTC."""

    @property
    def is_past_ttl(self) -> bool:
        """Whether the node's --ttl was over: its keeper asked for it, or `reap`."""
        expires = expiry_of(self.node)
        return expires is not None and clock.parse(self.began) + A_SECOND >= expires

    @property
    def may_be_idle(self) -> bool:
        """Whether the node had existed for as long as its --idle."""
        idle = idle_limit(self.node)
        age = clock.parse(self.began) - clock.parse(self.node.created)
        return bool(idle) and age >= timedelta(seconds=idle)


def past_deletions(history: History) -> list[PastDeletion]:
    """Return the deletions of nodes whose metadata the provider remembers, the oldest first."""
    nodes: dict[tuple[str, str], Node] = {}
    deletions = []
    for change in history.changes:
        if change.node and not change.of_queued_resource:
            nodes[change.zone, change.name] = change.node
        elif change.verb == "delete" and not change.error:
            ended = [place for place, node in nodes.items() if _ends(change, node)]
            deletions += [PastDeletion(nodes.pop(place), change.began) for place in ended]
    return deletions


def _ends(deletion: PastChange, node: Node) -> bool:
    """Return whether a node, or its queued resource, is what was deleted."""
    name = node.queued_resource if deletion.of_queued_resource else node.name
    return (deletion.zone, deletion.name) == (node.zone, name)


def require_time_left(node: Node, read_time: Callable[[], datetime]) -> None:
    """Raise StateError for a node past its end: its keeper would delete it as soon as it has booted."""
    end = expiry_of(node)
    if end and end <= read_time():
        raise StateError(
            f"'{node.name}' is past its --ttl, which ended {clock.iso(end)}: it would delete itself at boot.",
            hint=f"Move its end first: tpuctl extend {node.name} 8h",
            expires=clock.iso(end),
        )


def plan_extension(
    provider: Provider, name: str, length: int, now: datetime, zone: str | None = None
) -> Extension:
    """Return the TPU of this name with its new end: `length` seconds after its present one, or after now.

    Raises NotFoundError, StateError for one without a --ttl or without nodes yet, UsageError for an end more
    than a year away, and DeadlineError where a zone that did not answer may hold it.
    """
    allocation = find_allocation(provider, name, zone)
    if not allocation.nodes:
        raise StateError(
            f"'{name}' has no nodes yet: the time of --ttl begins with them.",
            hint="Its state: 'tpuctl ls'.",
        )
    present = expiry(allocation)
    if present is None:
        raise StateError(
            f"'{name}' has no --ttl: it runs until '{allocation.deletion}'.",
            hint="A --ttl is given to 'tpuctl up'.",
        )
    expires = max(present, now).replace(microsecond=0) + timedelta(seconds=length)
    if expires > now + timedelta(seconds=records.LONGEST):
        raise UsageError(f"'{name}' would end more than a year from now.", hint="Extend it by less.")
    return Extension(allocation, expires)


def changes(extension: Extension) -> list[UpdateNode]:
    """Return the changes by which `extend` moves the end."""
    planned = [_change(node, extension.expires) for node in extension.allocation.nodes]
    return [change for change in planned if change]


def requests(provider: Provider, extension: Extension) -> list[HttpRequest]:
    """Return the requests that `extend` sends, for --dry-run."""
    return [provider.http_request(change) for change in changes(extension)]


def extend(provider: Provider, extension: Extension, report: Report) -> None:
    """Move the end of every node; what others change in the metadata at the same time stays."""
    for node in extension.allocation.nodes:
        change_metadata(
            provider, node, lambda current: _change(current, extension.expires), "to take the new expiry"
        )
        report(f"{node.name} ends {clock.iso(extension.expires)}")


def _change(node: Node, expires: datetime) -> UpdateNode | None:
    """Return the change that moves the end of a node; None for one that ends then or later."""
    stored = expiry_of(node)
    if stored and stored >= expires:
        return None
    return UpdateNode(node, metadata={**node.metadata, records.EXPIRES: clock.iso(expires)})
