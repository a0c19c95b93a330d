"""Compares two looks at the TPUs: what has changed, in one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from tpuctl.flows.overview.views import Overview, troubles
from tpuctl.nodes import Node, QueuedResource

Key = tuple[str, str, str]
"""Zone, name, and whether it is a queued resource."""


@dataclass(frozen=True)
class Snapshot:
    """What a look showed of one TPU."""

    name: str
    zone: str
    kind: str
    """`node` or `queued resource`."""
    state: str
    detail: str
    """Its run and what its user has to know."""


@dataclass(frozen=True)
class Difference:
    """A TPU that came, changed or went; None for one that was not, or is not, there."""

    was: Snapshot | None
    now: Snapshot | None

    @property
    def line(self) -> str:
        """The change in one line: `n1 in Z: CREATING -> READY`."""
        newest = self.now or self.was
        assert newest is not None
        now = self.now.state if self.now else "gone"
        states = f"{self.was.state} -> {now}" if self.was and self.was.state != now else now
        detail = f" ({self.now.detail})" if self.now and self.now.detail else ""
        kind = "" if newest.kind == "node" else f"{newest.kind} "
        return f"{kind}{newest.name} in {newest.zone}: {states}{detail}"


def snapshots(overview: Overview, now: datetime) -> dict[Key, Snapshot]:
    """Return what a look shows of each node and each queued resource."""
    items: list[Node | QueuedResource] = list(overview.inventory.nodes)
    items += [item.queued_resource for item in overview.inventory.allocations if item.queued_resource]
    return {(item.zone, item.name, type(item).__name__): _snapshot(item, overview, now) for item in items}


def differences(before: Mapping[Key, Snapshot], overview: Overview, now: datetime) -> Iterator[Difference]:
    """Yield what is different from an earlier look; a zone that does not answer has not changed."""
    after = snapshots(overview, now)
    for key, current in after.items():
        if before.get(key) != current:
            yield Difference(before.get(key), current)
    for key, former in before.items():
        if key not in after and former.zone not in overview.inventory.unreachable:
            yield Difference(former, None)


def _snapshot(item: Node | QueuedResource, overview: Overview, now: datetime) -> Snapshot:
    is_node = isinstance(item, Node)
    run = overview.workload.on(item) if isinstance(item, Node) else None
    announced = overview.maintenance.get(item.id.uid) if isinstance(item, Node) else None
    details = [f"{run.run} {run.state}", *filter(None, [run.trouble])] if run else []
    details += troubles(item, announced, now)
    if isinstance(item, Node) and overview.silence(item, now):
        details.append("keeper silent")
    kind = "node" if is_node else "queued resource"
    return Snapshot(item.name, item.zone, kind, item.provider_state, "; ".join(details))
