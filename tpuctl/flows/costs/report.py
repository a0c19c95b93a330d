"""Estimates what runs and nodes have cost since a moment, from what bucket and provider remember."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.totals import Total
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.costs.bills import Entry
from tpuctl.flows.nodes.lookup import take_inventory
from tpuctl.flows.nodes.options import is_own
from tpuctl.flows.progress import Report as Warn
from tpuctl.flows.runs.attempt_costs import AttemptCost, RunCosts, known_costs
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses
from tpuctl.flows.runs.lookup import ListedRun, listed_runs
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.summaries import read_state
from tpuctl.nodes import History, Node, NodeId, PastChange
from tpuctl.object_content import METADATA
from tpuctl.parallel import fanout, values
from tpuctl.runs import Tpu, Verdict, read_run_metadata, read_run_type, read_verdict_metadata

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket


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


WIDTH = 16
"""Runs read at once."""
PriceOf = Callable[[Node | Tpu], Price]
"""Returns what a node costs per hour now."""


@dataclass(frozen=True)
class CostReport:
    """What was used between two moments."""

    since: str
    until: str
    entries: Sequence[Entry]
    gaps: Sequence[str]
    """What is missing in it: sentences."""

    @property
    def total(self) -> Total:
        """The sum."""
        return Total.of(entry.cost for entry in self.entries)


def take_costs(
    bucket: Bucket, provider: Provider, witnesses: Witnesses, price_of: PriceOf, since: datetime, warn: Warn
) -> CostReport:
    """Return the costs since a moment, by the bucket's clock; what does not answer is said in the result."""
    now = bucket.now()
    start, end = clock.iso(since), clock.iso(now)
    every = listed_runs(bucket, warn, METADATA)
    listed = [run for run in every if run.is_open or run.ended >= start]
    read = fanout(lambda run: _run_entries(bucket, run, witnesses, price_of, now, warn), listed, width=WIDTH)
    runs = [entry for entries in values(read) for entry in entries]
    known, gaps = _lives(provider, end)
    shares = shared(runs, known, price_of)
    entries = [part for entry in shares if (part := entry.within(start, end))]
    gaps += _forgotten(known, [entry for entry in entries if entry.run])
    return CostReport(start, end, entries, gaps)


def _run_entries(
    bucket: Bucket, listed: ListedRun, witnesses: Witnesses, price_of: PriceOf, now: datetime, warn: Warn
) -> list[Entry]:
    run = StoredRun(bucket, listed.name, warn)
    costs = RunCosts(run, price_of, listed.record.updated)
    owner, labels = read_run_type(listed.record.content_type), read_run_metadata(listed.record.metadata)
    if owner and labels is not None and (verdict := _listed_verdict(listed)):
        return _entries(run.name, owner, labels, [costs.of(verdict)], now)
    try:
        record = run.record
    except (NotFoundError, RecordMissingError):
        return []  # deleted since it was listed
    except BadObjectError as error:
        warn(error.message)
        return []
    state = read_state(run, witnesses)
    attempts = known_costs(costs, state, now)
    owner = record.machine.owner if record.machine else record.submitter
    labels = dict(record.machine.labels) if record.machine else {}
    return _entries(run.name, owner, labels, attempts, now)


def _listed_verdict(listed: ListedRun) -> Verdict | None:
    """Return what the listing tells of a verdict that stands for good; None where it does not tell enough."""
    if not listed.verdict or not listed.outcome:
        return None
    return read_verdict_metadata(listed.verdict.metadata, listed.name, listed.outcome)


def _entries(
    run: str, user: str, labels: Mapping[str, str], attempts: Iterable[AttemptCost], now: datetime
) -> list[Entry]:
    return [
        _entry(run, user, labels, attempt, now, node)
        for attempt in attempts
        if not attempt.is_unused
        for node in (attempt.tpu.id.parts if attempt.tpu else [None])
    ]


def _entry(
    run: str, user: str, labels: Mapping[str, str], attempt: AttemptCost, now: datetime, node: NodeId | None
) -> Entry:
    """Return the time of one node of an attempt: of several slices each has its part of the price."""
    part = 1 / Decimal(len(attempt.tpu.id.parts) if attempt.tpu else 1)
    return Entry(
        run=run,
        attempt=attempt.attempt,
        node=node.name if node else "",
        zone=node.zone if node else "",
        uid=node.uid if node else "",
        user=user,
        began=attempt.began,
        ended=attempt.ended or clock.iso(now),
        seconds=attempt.seconds,
        price=attempt.price.times(part),
        is_present=attempt.is_present,
        cost=attempt.cost.times(part),
        labels=labels,
        goes_on=not attempt.ended,
        is_preempted=attempt.is_preempted,
    )


def _lives(provider: Provider, now: str) -> tuple[list[NodeLife], list[str]]:
    """Return what is known of nodes, and sentences about what did not answer."""
    gaps = []
    inventory = take_inventory(provider)
    if inventory.unreachable:
        gaps.append(f"No answer from {', '.join(inventory.unreachable)}: TPUs there are missing.")
    try:
        history = provider.history(None)
    except TpuctlError as error:
        history = History(())
        gaps.append(f"TPUs that are gone are missing: {error.message}")
    silent = sorted({*history.unreachable} - {*inventory.unreachable})
    if silent:
        gaps.append(f"No answer from {', '.join(silent)}: TPUs that are gone there are missing.")
    return lives(inventory.nodes, history, now), gaps


def shared(runs: Sequence[Entry], known: Iterable[NodeLife], price_of: PriceOf) -> list[Entry]:
    """Return the time of every node, each second once: that of runs, then that of none.

    A TPU has one run at a time, and none where it did not bill: also after a run on it was preempted, until
    it is deleted. Records of two can overlap: those of an earlier version of tpuctl have the time in line in
    them. Then the time is that of the run which began first.
    """
    lives_by_uid = {life.node.id.uid: life for life in known}
    on_node, parts, idle = dict[str, list[Entry]](), dict[int, list[Entry]](), list[Entry]()
    for entry in runs:
        if entry.uid and entry.began:
            on_node.setdefault(entry.uid, []).append(entry)
    for uid in {**lives_by_uid, **on_node}:
        on_it = sorted(on_node.get(uid, []), key=lambda entry: (entry.began, entry.ended))
        life, used = lives_by_uid.get(uid), [(entry.began, entry.ended) for entry in on_it]
        if life and any(entry.is_preempted for entry in on_it):
            life = life.until(max(end for _, end in used))
        billed, paid = life.billed(used) if life else [], ""
        for entry in on_it:
            spans = billed if life else [(entry.began, entry.ended)]
            left = [part for begin, end in spans if (part := entry.within(max(begin, paid), end))]
            parts[id(entry)] = left or [entry.part(entry.ended, entry.ended)]
            paid = max(paid, entry.ended)
        if life:
            idle += _idle(life, on_it, list(without(life.billed(used), used)), price_of)
    return [*(part for entry in runs for part in parts.get(id(entry), [entry])), *idle]


def _idle(
    life: NodeLife, on_it: Sequence[Entry], spans: Sequence[Span], price_of: PriceOf
) -> Iterator[Entry]:
    """Yield the time in which no run used a node, at the price of the last run on it, or the present one."""
    node = life.node
    recorded = [entry.price for entry in on_it if not entry.is_present]
    price = recorded[-1] if recorded else price_of(node)
    labels = {key: value for key, value in node.labels.items() if not is_own(key)}
    for begin, end in spans:
        seconds = (clock.parse(end) - clock.parse(begin)).total_seconds()
        yield Entry(
            run="",
            attempt=0,
            node=node.name,
            zone=node.zone,
            uid=node.id.uid,
            user=node.owner,
            began=begin,
            ended=end,
            seconds=seconds,
            price=price,
            is_present=not recorded,
            cost=price.for_seconds(seconds),
            labels=labels,
            goes_on=life.goes_on and (begin, end) == spans[-1],
        )


def _forgotten(known: Sequence[NodeLife], runs: Sequence[Entry]) -> Iterator[str]:
    """Yield which nodes of runs nobody remembers: only the time of runs on them is counted."""
    complete = {life.node.id.uid for life in known if not life.open_since}
    partly = {life.node.id.uid: life.node.name for life in known if life.open_since}
    gone = {entry.uid: entry.node for entry in runs if entry.uid and entry.uid not in complete}
    for name in sorted({*gone.values(), *partly.values()}):
        yield f"When '{name}' ended is not known: of it only the time up to its last run is counted."
