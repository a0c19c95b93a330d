"""Tells the story of a TPU: what was asked, what the provider answered, what ran there, how it ended.

- Compares two looks at the TPUs: what has changed, in one line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl import bucket_objects
from tpuctl.bucket_layout import NodePaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import NotFoundError, TpuctlError, nearest
from tpuctl.flows.nodes.lifetime import past_deletions
from tpuctl.flows.nodes.lookup import Allocation, Inventory, no_answer, take_inventory
from tpuctl.flows.overview.node_runs import RunOnNode, runs_of
from tpuctl.flows.overview.views import Overview, next_command, troubles
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.lookup import started_on
from tpuctl.host.keeper.records import EXPIRED, IDLED, NODES, PREEMPTED, Deletion
from tpuctl.nodes import History, Node, NodeState, PastChange, QueuedResource
from tpuctl.nodes.queued_resources import REPLACEMENT
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket


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


KEEPER = "keeper"
"""The source of what keepers recorded."""
LARGEST_DELETION = 64 << 10
"""Bytes of a keeper's record."""
MOST_RUNS = 20
"""Newest runs of a node that are told."""


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    at: str
    """ISO-8601, UTC."""
    source: str
    """Who says so."""
    text: str


@dataclass(frozen=True)
class Story:
    """What happened to the TPUs of one name, oldest first, how they are now, and what to do."""

    name: str
    events: tuple[Event, ...]
    now: tuple[str, ...]
    """A sentence for each TPU that exists, or why there is none."""
    gaps: tuple[str, ...]
    """What did not answer."""
    hint: str
    """What the last failure asks for; empty without one."""
    command: str
    """The next command."""


def tell(
    provider: Provider,
    get_bucket: Callable[[], Bucket],
    name: str,
    zone: str | None,
    now: datetime,
    warn: Report,
) -> Story:
    """Return the story of what is or was called `name`, in a zone or in every zone.

    Raises NotFoundError where nobody knows the name, DeadlineError where those who may know did not answer.
    """
    inventory = take_inventory(provider, zone)
    existing = tuple(item for item in inventory.allocations if name in item.names)
    history, refusals = _history(provider, {name, *_other_names(existing)}, zone)
    silent = dict.fromkeys((*history.unreachable, *inventory.unreachable))
    gaps = [f"the provider's operations are unknown: {error.message}" for error in refusals]
    gaps += [f"no answer from {each}" for each in silent]
    try:
        slices = {node.name for item in existing if item.name == name for node in item.nodes}
        records, newest = _bucket_events(get_bucket(), {name, *slices}, zone, warn)
    except TpuctlError as error:
        records, newest = [], None
        refusals.append(error)
        gaps.append(f"the runs there are unknown: {error.message}")
    events = [*_changes(history), *_requests(existing), *records]
    if not any(event.source == KEEPER for event in records):
        events += _unrecorded(history)
    if not events and not existing:
        raise _nobody_knows(name, inventory, tuple(silent), refusals)
    return Story(
        name,
        tuple(sorted(events, key=_order)),
        tuple(_present(name, existing, inventory, now)),
        tuple(dict.fromkeys(gaps)),
        _hint(existing, history),
        _command(name, existing, newest, history),
    )


def _order(event: Event) -> tuple[str, bool]:
    """By time, which has seconds only: of one second a delete comes last."""
    return event.at, event.text.startswith("delete of")


def _other_names(existing: tuple[Allocation, ...]) -> Iterator[str]:
    """The queued resource's name tells of what the node's does not."""
    for item in existing:
        if item.queued_resource:
            yield item.queued_resource.name
            yield from (node.name for node in item.queued_resource.nodes)


def _history(provider: Provider, names: set[str], zone: str | None) -> tuple[History, list[TpuctlError]]:
    changes, silent, refusals = list[PastChange](), set[str](), list[TpuctlError]()
    for result in fanout(lambda name: provider.history(name, zone), sorted(names)):
        if result.value:
            changes += result.value.changes
            silent |= {*result.value.unreachable}
        elif result.error:
            refusals.append(result.error)
    known = tuple(sorted(changes, key=lambda change: change.began))
    return History(known, tuple(sorted(silent))), refusals


def _changes(history: History) -> Iterator[Event]:
    for change in history.changes:
        kind = "queued resource" if change.of_queued_resource else "node"
        subject = f"{change.verb} of {kind} {change.name} in {change.zone}"
        yield Event(change.began, "provider", f"{subject} asked for{_details(change.node)}")
        if change.error:
            answer = f"{subject} failed ({change.error.kind}): {change.error.message}"
            yield Event(change.ended or change.began, "provider", answer)
        elif change.ended:
            yield Event(change.ended, "provider", f"{subject} done")


def _details(node: Node | None) -> str:
    if node is None:
        return ""
    owner = f", by {node.owner}" if node.owner else ""
    return f": {node.accelerator}{', spot' if node.spot else ''}, {node.runtime}{owner}"


def _unrecorded(history: History) -> Iterator[Event]:
    """Yield why nodes were deleted of which no keeper has left a record, where that can be told."""
    for deletion in past_deletions(history):
        if deletion.is_past_ttl:
            yield Event(deletion.began, "provider", "its time to live was over; its keeper left no record")
        elif deletion.may_be_idle:
            text = "deleted by somebody, or by its keeper as nobody used it, which left no record"
            yield Event(deletion.began, "provider", text)


def _requests(existing: tuple[Allocation, ...]) -> Iterator[Event]:
    for queued in (item.queued_resource for item in existing):
        if queued:
            nodes = ", ".join(node.name for node in queued.nodes)
            text = f"queued resource {queued.name} asked for {queued.accelerator} as {nodes}"
            yield Event(queued.created, "provider", text)


def _bucket_events(
    bucket: Bucket, names: set[str], zone: str | None, warn: Report
) -> tuple[list[Event], RunOnNode | None]:
    """Return what runs and keepers wrote about nodes of these names, and the run that works there."""
    known = (NodePaths.parse(folder) for folder in bucket.folders(NODES))
    nodes = [paths for paths in known if paths and paths.name in names and zone in (None, paths.zone)]
    started, events = dict[tuple[str, int], RunOnNode](), list[Event]()
    for runs, earlier in values(fanout(lambda paths: _newest_runs(bucket, paths, warn), nodes)):
        started = {(run.run, run.attempt): run for run in runs} | started  # one on several slices is one
        events += earlier
    events += [event for run in started.values() for event in _run_events(run)]
    for deletions in values(fanout(lambda paths: _deletions(bucket, paths, warn), nodes)):
        events += deletions
    working = sorted((run for run in started.values() if run.works), key=lambda run: run.started)
    return events, working[-1] if working else None


def _newest_runs(bucket: Bucket, paths: NodePaths, warn: Report) -> tuple[list[RunOnNode], list[Event]]:
    """Return the newest runs of a node, and an event that says how many were before, if any."""
    named = started_on(bucket, paths)
    runs = runs_of(bucket, named, paths.uid, warn, MOST_RUNS)
    older = len(named) - len(runs)
    if len(runs) < MOST_RUNS or not older:
        return runs, []
    text = f"{older:,} runs were started here before: 'tpuctl runs --limit 0' lists them"
    return runs, [Event(named[-1].started, "bucket", text)]


def _run_events(run: RunOnNode) -> Iterator[Event]:
    yield Event(run.started, "bucket", f"run {run.run} started (attempt {run.attempt})")
    if run.verdict:
        text = f"run {run.run} {run.verdict.outcome}: {run.verdict.evidence}"
        yield Event(run.verdict.decided, "bucket", text)


def _deletions(bucket: Bucket, paths: NodePaths, warn: Report) -> list[Event]:
    events = []
    for item in bucket.objects(paths.keeper):
        try:
            record = bucket_objects.decode(bucket.read(item.name, LARGEST_DELETION), Deletion)
        except BadObjectError as error:
            warn(error.message)
        except bucket_objects.DecodeError as error:
            warn(BadObjectError(item.name, f"is no record of a keeper: {error}").message)
        else:
            words = {EXPIRED: "its time to live was over", IDLED: f"idle since {record.active}"}
            why = words.get(record.reason)
            if why:
                events.append(Event(item.updated, KEEPER, f"the TPU deletes itself: {why}"))
            elif record.reason == PREEMPTED:
                events.append(Event(item.updated, "bucket", "the TPU was preempted, and is deleted"))
    return events


def _present(
    name: str, existing: tuple[Allocation, ...], inventory: Inventory, now: datetime
) -> Iterator[str]:
    for item in existing:
        parts: list[Node | QueuedResource] = [*item.nodes]
        if item.queued_resource:
            parts.append(item.queued_resource)
        for part in parts:
            kind = "Node" if isinstance(part, Node) else "Queued resource"
            state = ": ".join(filter(None, (part.provider_state, "; ".join(troubles(part, None, now)))))
            yield f"{kind} {part.name} in {part.zone} is {state}."
    if not existing and inventory.unreachable:
        yield f"Whether '{name}' exists is unknown: no answer from {', '.join(inventory.unreachable)}."
    elif not existing:
        yield f"'{name}' does not exist any more: nothing of it bills."


def _hint(existing: tuple[Allocation, ...], history: History) -> str:
    """What the newest failure asks for, unless a later change made good for it."""
    for item in existing:
        if item.queued_resource and item.queued_resource.error_hint:
            return item.queued_resource.error_hint
    last = history.changes[-1] if history.changes else None
    return last.error.hint if last and last.error else ""


def _command(name: str, existing: tuple[Allocation, ...], run: RunOnNode | None, history: History) -> str:
    for item in existing:
        if item.is_over:
            return REPLACEMENT if item.is_kept_by_terraform else f"{item.deletion} --zone {item.zone}"
        node = item.nodes[0] if item.nodes else None
        part = node or item.queued_resource
        if part:
            return next_command(part, run if node and node.state is NodeState.READY else None)
    kinds = [change.node.accelerator for change in history.changes if change.node]
    return f"tpuctl up {kinds[-1]} --name {name}" if kinds else "tpuctl ls"


def _nobody_knows(
    name: str, inventory: Inventory, silent: Sequence[str], refusals: Sequence[TpuctlError]
) -> TpuctlError:
    """Return the error for a name of which nothing was found; who was not heard may know it all the same."""
    if silent:
        return no_answer(silent, f"'{name}'")
    for error in refusals:
        message = f"Whether there was a TPU '{name}' is unknown. {error.message}"
        return type(error)(message, hint=error.hint, **error.facts)
    close = nearest(name, sorted({known for item in inventory.allocations for known in item.names}))
    return NotFoundError(
        f"Nobody knows a TPU '{name}': neither the provider's operations of the last days nor the bucket.",
        hint=f"Did you mean {close[0]}?" if close else "'tpuctl ls' lists those that exist.",
    )
