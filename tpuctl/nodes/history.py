"""Defines what a provider remembers, and what it announces: past changes and upcoming maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.errors import TpuctlError
from tpuctl.nodes.node import Node


@dataclass(frozen=True)
class PastChange:
    """A change of a node or of a queued resource, as the provider remembers it."""

    zone: str
    name: str
    """Of the node or the queued resource."""
    verb: str
    """The provider's word: `create`, `delete`, `stop` ..."""
    began: str
    """ISO-8601, UTC."""
    ended: str = ""
    """ISO-8601, UTC; empty while it runs."""
    of_queued_resource: bool = False
    error: TpuctlError | None = None
    """Why it failed."""
    node: Node | None = None
    """The node as the change left it, where the provider keeps that."""


@dataclass(frozen=True)
class History:
    """What the provider remembers, oldest first; for some days, it does not say how long."""

    changes: tuple[PastChange, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer: changes there are missing."""


@dataclass(frozen=True)
class Maintenance:
    """Work on the hosts of a node that the provider has announced."""

    kind: str
    """The provider's word: `SCHEDULED`, `UNSCHEDULED`."""
    status: str
    """The provider's word: `PENDING`, `ONGOING`."""
    begins: str
    """ISO-8601, UTC; empty where the provider does not say."""
    ends: str
    """ISO-8601, UTC; empty where the provider does not say."""
    can_reschedule: bool
    """Whether its user may have it done at another time."""
