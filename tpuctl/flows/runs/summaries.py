"""Summarizes each run in the bucket in one line: one listing, then the records of the runs that are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import RUNS, STATUSES
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.totals import Total
from tpuctl.display import Cost, Record, cost_of
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.attempt_costs import NOT_ON_A_NODE, PriceOf, RunCosts, known_costs, total
from tpuctl.flows.runs.evidence.witnesses import LiveSign, Witnesses, live_signs
from tpuctl.flows.runs.lookup import ListedRun, runs_in
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RECORD_MISSING, RunState, total_lost, unstarted_label, unstarted_reason
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import UNKNOWN
from tpuctl.parallel import fanout, values
from tpuctl.runs import Verdict
from tpuctl.upkeep import Notes, TagCondition

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

WIDTH = 8
"""Runs read at once."""


@dataclass(frozen=True)
class Selection:
    """Which runs are meant; empty fields select every run."""

    states: Sequence[str] = ()
    datasets: Sequence[str] = ()
    """NAME or NAME/VERSION."""
    since: float | None = None
    """Seconds, by the bucket's clock, within which they were submitted."""
    limit: int | None = None
    """The newest so many."""
    tags: Sequence[TagCondition] = ()
    """Of which all hold."""

    @property
    def has_conditions(self) -> bool:
        """Whether more than the newest is asked for."""
        return bool(self.states or self.datasets or self.tags or self.since is not None)

    def may_have(self, run: ListedRun) -> bool:
        """Return whether a run may be in one of the states and have the tags, as far as its listing tells."""
        if self.tags and not run.notes:
            return False
        return not (self.states and run.outcome) or run.outcome in self.states

    @property
    def may_have_unrecorded(self) -> bool:
        """Whether a run may be meant of which no record tells a dataset or tags."""
        is_meant = not self.states or RECORD_MISSING in self.states
        return is_meant and not self.datasets and not self.tags

    def has_dataset(self, name: str) -> bool:
        """Return whether a run with this dataset (NAME/VERSION, or empty) may be meant."""
        return not self.datasets or name in self.datasets or name.partition("/")[0] in self.datasets

    def has_tags(self, notes: Notes | None) -> bool:
        """Return whether a run with these notes is meant; notes that cannot be read have no tag."""
        return all(notes is not None and tag.holds(notes.tags) for tag in self.tags)


EVERY_RUN = Selection()


NOTHING = total(())


@dataclass(frozen=True)
class RunInfo(Record):
    """One line about a run."""

    name: str
    state: str
    """`queued`, `running`, `succeeded`, `failed`, ...: as 'tpuctl runs' shows it."""
    submitted: datetime
    """By the bucket's clock."""
    ended: datetime | None
    """None while it goes on."""
    duration: timedelta
    """From its submission to its end, or until now."""
    accelerator: str
    node: str
    """Empty before its first attempt."""
    zone: str
    dataset: str
    """NAME/VERSION; empty without one."""
    exit_code: int | None
    reason: str
    """The evidence of its end, or why its state is not known."""
    cost: Cost
    submitter: str
    attempt: int
    """The number of the last one; 0 where it is not known."""
    tags: Mapping[str, str]
    slices: int = 1
    """Nodes of the accelerator that its last attempt spans."""


@dataclass(frozen=True)
class Summary:
    """What `tpuctl runs` shows of a run."""

    info: RunInfo
    created: str
    """By the clock of the machine that submitted it."""
    total: Total = NOTHING
    """What its attempts have cost together."""
    price: Price = NOT_ON_A_NODE
    """The same as one price, in cents; unknown where it is none."""
    verdict: Verdict | None = None
    steps_lost: int | None = None
    """Steps that its attempts had to do again; None where logs and checkpoints do not tell."""
    quiet: float | None = None
    """Seconds for which no worker's script has printed anything; None where none runs, or nobody knows."""
    notes: Notes | None = None
    """Its tags and notes; None where nobody has written any, or they cannot be read."""


@dataclass(frozen=True)
class Page:
    """Some runs of a bucket."""

    runs: Sequence[Summary]
    """Oldest first."""
    names: Sequence[str]
    """Of every run of the bucket, oldest first."""
    older: int
    """Runs, before these, that were not looked at."""


def take_page(
    bucket: Bucket,
    witnesses: Witnesses,
    warn: Report = silent,
    selection: Selection = EVERY_RUN,
    price_of: PriceOf | None = None,
) -> Page:
    """Return the newest runs of a selection; those that have ended by now get their verdict.

    `warn` gets a line about each object that is no record: the run, or its state, is left out for that. Runs
    that work though their records are gone are the last lines, whatever the limit.
    """
    objects = bucket.objects(RUNS, glob=f"{RUNS}*/{{run.json,verdict.json,notes.json,{STATUSES}}}")
    listed = runs_in(objects, bucket.now(), warn)
    names = [run.name for run in listed]
    signs = _signs_without_record(bucket, objects) if selection.may_have_unrecorded else []
    if selection.since is not None:
        start = clock.iso(bucket.now() - timedelta(seconds=selection.since))
        listed = [run for run in listed if run.record.updated >= start]
    listed = [run for run in listed if selection.may_have(run)]
    limit = len(listed) if selection.limit is None else selection.limit
    reader = _Reader(bucket, witnesses, warn, selection, price_of or (lambda _: unknown("nobody asked")))
    chosen, looked_at = list[Summary](), 0
    for batch in _batches(listed[::-1], limit, selection):
        if len(chosen) >= limit:
            break
        looked_at += len(batch)
        summaries = values(fanout(reader.summary, batch, width=WIDTH))
        chosen += [summary for summary in summaries if summary]
    older = len(listed) - looked_at
    unrecorded = [_unrecorded(sign, bucket.now()) for sign in signs]
    names += [sign.run for sign in signs]
    return Page([*chosen[:limit][::-1], *unrecorded], names, older + max(0, len(chosen) - limit))


def _signs_without_record(bucket: Bucket, objects: Sequence[Object]) -> list[LiveSign]:
    """Return what works of runs without a record among listed objects."""
    recorded = {item.name.split("/")[1] for item in objects if item.name.endswith("/run.json")}
    return live_signs(bucket, (item for item in objects if item.name.split("/")[1] not in recorded))


def _unrecorded(sign: LiveSign, now: datetime) -> Summary:
    since = clock.parse(sign.since)
    duration, cost = max(timedelta(), now - since), cost_of(NOT_ON_A_NODE)
    info = RunInfo(
        sign.run, RECORD_MISSING, since, None, duration, "", "", "", "", None, sign.reason, cost, "",
        sign.attempt, {},
    )  # fmt: skip
    return Summary(info, sign.since)


def summary_of(bucket: Bucket, name: str, witnesses: Witnesses, warn: Report, price_of: PriceOf) -> Summary:
    """Return the line of one run; raises NotFoundError without it, and what keeps it from being read."""
    run = StoredRun(bucket, name, warn)
    item = bucket.stat(run.paths.record)
    if item is None:
        raise run.not_found()
    run.record  # noqa: B018  read for its error
    notes = bucket.stat(run.paths.notes)
    reader = _Reader(bucket, witnesses, warn, EVERY_RUN, price_of)
    summary = reader.summary(ListedRun(name, item, notes=notes))
    if summary is None:
        raise run.not_found()
    return summary


def _batches(listed: Sequence[ListedRun], limit: int, selection: Selection) -> Iterator[Sequence[ListedRun]]:
    """Yield runs to be read at once: as many as are shown, then, where some did not fit, a few more each."""
    first = max(limit, WIDTH) if not selection.has_conditions else max(limit, 4 * WIDTH)
    yield listed[:first]
    yield from (listed[start : start + 4 * WIDTH] for start in range(first, len(listed), 4 * WIDTH))


class _Reader:
    """Reads what a line needs, and no more."""

    def __init__(
        self, bucket: Bucket, witnesses: Witnesses, warn: Report, selection: Selection, price_of: PriceOf
    ) -> None:
        self._bucket = bucket
        self._witnesses = witnesses
        self._warn = warn
        self._selection = selection
        self._price_of = price_of

    def summary(self, listed: ListedRun) -> Summary | None:
        """Return the line of a run; None for one that is not selected, or cannot be read, which is said."""
        run = StoredRun(self._bucket, listed.name, self._warn)
        try:
            record = run.record
        except BadObjectError as error:
            run.warn(error.message)
            return None
        except NotFoundError:
            return None  # deleted since it was listed
        except TpuctlError as error:
            run.warn(f"Run '{run.name}' cannot be read: {error.message}")
            return None
        if not self._selection.has_dataset(str(record.dataset or "")):
            return None
        notes = _notes(run) if listed.notes else None
        if not self._selection.has_tags(notes):
            return None
        state = read_state(run, self._witnesses)
        label = state.label if state else unstarted_label(self._seconds(listed.record.updated, ""))
        if self._selection.states and label not in self._selection.states:
            return None
        return self._line(listed, run, label, state, notes)

    def _line(
        self, listed: ListedRun, run: StoredRun, label: str, state: RunState | None, notes: Notes | None
    ) -> Summary:
        record = run.record
        verdict = state.verdict if state else None
        tpu = state.tpu if state else None
        ended = (verdict.ended or verdict.decided) if verdict else ""
        seconds = self._seconds(listed.record.updated, ended)
        reason = state.reason if state else unstarted_reason(listed.name, seconds)
        costs = RunCosts(run, self._price_of, listed.record.updated)
        attempts = known_costs(costs, state, self._bucket.now())
        price = total(attempts).price.rounded() if attempts else NOT_ON_A_NODE
        info = RunInfo(
            name=listed.name,
            state=label,
            submitted=clock.parse(listed.record.updated),
            ended=clock.parse(ended) if ended else None,
            duration=timedelta(seconds=seconds),
            accelerator=record.accelerator,
            node=tpu.name if tpu else "",
            zone=tpu.zone if tpu else "",
            dataset=str(record.dataset or ""),
            exit_code=verdict.exit_code if verdict else None,
            reason=reason,
            cost=cost_of(price),
            submitter=record.submitter,
            attempt=state.attempt if state else 0,
            tags=dict(notes.tags) if notes else {},
            slices=len(tpu.id.parts) if tpu else 1,
        )
        lost = total_lost(run, state.attempt) if state and state.attempt > 1 else None
        quiet = state.quiet if state else None
        return Summary(info, record.created, total(attempts), price, verdict, lost, quiet, notes)

    def _seconds(self, submitted: str, ended: str) -> float:
        end = clock.parse(ended) if ended else self._bucket.now()
        return max(0.0, (end - clock.parse(submitted)).total_seconds())


def _notes(run: StoredRun) -> Notes | None:
    try:
        return run.notes()
    except BadObjectError as error:
        run.warn(error.message)
        return None


def read_state(run: StoredRun, witnesses: Witnesses) -> RunState | None:
    """Return what is known of a run's state, and warn of what is not; None without an attempt."""
    try:
        state = settle(run, witnesses)
    except NotFoundError:
        return None
    except TpuctlError as error:  # one run that cannot be looked at hides no other
        run.warn(f"The state of run '{run.name}' is unknown: {error.message}")
        return RunState(None, unanswered=error.message)
    if state.error:
        run.warn(state.error.message)
    elif state.label == UNKNOWN and state.unanswered:
        run.warn(f"The state of run '{run.name}' is unknown: {state.unanswered}")
    elif state.doubt:
        run.warn(f"Run '{run.name}': {state.doubt}.")
    return state
