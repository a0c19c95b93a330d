"""Deletes TPUs that nobody uses any more: the second net below the keeper, from any machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tpuctl import clock
from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, TpuctlError
from tpuctl.flows.nodes import down
from tpuctl.flows.nodes.lifetime import expiry
from tpuctl.flows.nodes.lookup import Allocation, take_inventory
from tpuctl.flows.progress import Report
from tpuctl.nodes import HttpRequest, Node, NodeState


@dataclass(frozen=True)
class Disuse:
    """When a TPU counts as owned by no run."""

    used: Callable[[Iterable[Node]], Collection[str]]
    """Returns the uids of those nodes on which a run has not ended, or ended less than `age` ago."""
    age: timedelta
    """Nodes that were created or started since count as owned: their run may be about to be submitted."""


@dataclass(frozen=True)
class Reaping:
    """What `reap` deletes, each with the reason."""

    allocations: tuple[Allocation, ...]
    reasons: tuple[str, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer and may hold more."""

    def only(self, earlier: Reaping) -> Reaping:
        """Return those of them that an earlier look found, too."""
        known = {_key(allocation) for allocation in earlier.allocations}
        kept = [
            (allocation, reason)
            for allocation, reason in zip(self.allocations, self.reasons, strict=True)
            if _key(allocation) in known
        ]
        return Reaping(tuple(item for item, _ in kept), tuple(why for _, why in kept), self.unreachable)


def plan_reap(
    provider: Provider,
    owner: str | None,
    now: datetime,
    zone: str | None = None,
    disuse: Disuse | None = None,
) -> Reaping:
    """Return what tpuctl created for `owner` (None: for anybody) and nobody uses any more.

    That is what is past its --ttl, what has lost its nodes (preempted, suspended) or never gets them
    (failed), and with `disuse` what is READY and owned by no run.
    """
    inventory = take_inventory(provider, zone)
    chosen = []
    for allocation in inventory.allocations:
        if not allocation.managed or not (owner is None or allocation.is_owned_by(owner)):
            continue
        reason = _reason(provider, allocation, now, disuse)
        if reason:
            chosen.append((allocation, reason))
    return Reaping(
        tuple(allocation for allocation, _ in chosen),
        tuple(reason for _, reason in chosen),
        inventory.unreachable,
    )


def requests(provider: Provider, reaping: Reaping) -> list[HttpRequest]:
    """Return the requests that `reap` sends, for --dry-run."""
    return down.requests(provider, down.DownPlan(reaping.allocations))


def reap(provider: Provider, reaping: Reaping, report: Report) -> None:
    """Delete what is planned, each whatever happens to the others; raises DeadlineError for silent zones."""
    down.down(provider, down.DownPlan(reaping.allocations), report)
    if reaping.unreachable:
        zones = ", ".join(reaping.unreachable)
        raise DeadlineError(
            f"No answer from {zones}: what has expired or failed there was not looked for, and may bill.",
            hint="Run 'tpuctl reap' again in a minute.",
            unreachable=list(reaping.unreachable),
        )


def _reason(provider: Provider, allocation: Allocation, now: datetime, disuse: Disuse | None) -> str:
    queued = allocation.queued_resource
    if queued and queued.state.is_over:
        return f"its queued resource is {queued.provider_state}"
    lost = [node for node in allocation.nodes if node.state is NodeState.PREEMPTED]
    if lost:
        return f"{lost[0].name} is {lost[0].provider_state}"
    end = expiry(allocation)
    if end and end <= now:
        return f"expired {clock.iso(end)}"
    return "owned by no run" if disuse and _is_disused(provider, allocation, now, disuse) else ""


def _is_disused(provider: Provider, allocation: Allocation, now: datetime, disuse: Disuse) -> bool:
    latest = now - disuse.age
    return (
        bool(allocation.nodes)
        and all(
            node.state is NodeState.READY
            and 0 < node.created_at <= latest.timestamp()
            and not _was_started(provider, node, latest)
            for node in allocation.nodes
        )
        and not disuse.used(allocation.nodes)  # last: it asks hosts
    )


def _was_started(provider: Provider, node: Node, since: datetime) -> bool:
    """Whether a node was stopped, and started since: as one that was created, it may be about to be used.

    So is one of which the provider does not say that.
    """
    try:
        history = provider.history(node.name, node.zone)
    except TpuctlError:
        return True
    starts = (change.began for change in history.changes if change.verb == "start" and not change.error)
    return bool(history.unreachable) or any(clock.parse(began) > since for began in starts)


def _key(allocation: Allocation) -> tuple[object, ...]:
    """Which allocation: a name that was used again meanwhile is another."""
    queued = allocation.queued_resource
    created = queued.created if queued else ""
    return allocation.zone, allocation.name, created, *(node.id.uid for node in allocation.nodes)
