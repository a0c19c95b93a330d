"""Finds runs in the bucket (all, those of a node, by name, one's own last), and the nodes that runs use."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from tpuctl import clock, runs
from tpuctl.bucket_layout import RUN_ON_NODE, RUNS, STATUSES, NodePaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.evidence.witnesses import Witnesses, live_signs
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_attempt import age_of
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, FEW, StoredRun
from tpuctl.host.keeper import records
from tpuctl.nodes import Node
from tpuctl.parallel import fanout, values
from tpuctl.upkeep import REMOVAL_TYPE

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


class Usage:
    """Says which nodes the runs of a bucket use."""

    def __init__(
        self, bucket: Bucket, witnesses: Witnesses, now: datetime, age: timedelta, warn: Report
    ) -> None:
        self._bucket = bucket
        self._witnesses = witnesses
        self._warn = warn
        self._since = now - age

    def used(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Return the uids of nodes on which a run has not ended, or ended less than the age ago.

        A node whose runs are recorded in another bucket counts as used, and one on which a run works that no
        record tells of. Raises StateError for a run of a node that cannot be read: nobody knows whether
        it has ended.
        """
        listed = list(nodes)
        if listed:
            self._listing  # noqa: B018  read once, before several threads ask for it
        answers = values(fanout(self._is_used, listed, width=WIDTH))
        return frozenset(node.id.uid for node, is_used in zip(listed, answers, strict=True) if is_used)

    def _is_used(self, node: Node) -> bool:
        """Whether one of its runs holds a node; the newest are looked at first."""
        if not node.is_recorded_in(self._bucket.name):
            other = node.metadata[records.BUCKET]
            self._warn(
                f"{node.name} is left alone: its runs are recorded in gs://{other}. "
                f"To include it: --bucket {shlex.quote(other)}."
            )
            return True
        names = dict.fromkeys(item.run for item in started_on(self._bucket, NodePaths.of(node.id)))
        settled, working = self._listing
        unsettled = (name for name in names if name not in settled)
        if any(self._holds(StoredRun(self._bucket, name, self._warn), node) for name in unsettled):
            return True
        seen = working.get(node.id.uid)
        unlisted = [seen] if seen else self._witnesses.beside(node.id)
        if unlisted:
            self._warn(
                f"{node.name} is left alone: run '{unlisted[0]}' works on it. Its records were deleted from"
                f" gs://{self._bucket.name}, or are in another bucket."
            )
        return bool(unlisted)

    @cached_property
    def _listing(self) -> tuple[frozenset[str], dict[str, str]]:
        """What one listing tells of all runs; one that is started after it is among none of them.

        The runs that have ended for good, long enough ago, and, by the uid of a node, a run that works there
        as its statuses say, whatever records there are.
        """
        objects = self._bucket.objects(RUNS, glob=f"{RUNS}*/{{verdict.json,{STATUSES}}}")
        signs = live_signs(self._bucket, objects)
        working = {uid: sign.run for sign in signs for uid in sign.tpu_uids}
        return frozenset(outcomes_in(objects, self._bucket.now(), self._since)), working

    def _holds(self, run: StoredRun, node: Node) -> bool:
        try:
            if node.id.uid not in run.node_uids():
                return False  # it goes on elsewhere
            state = settle(run, self._witnesses)
        except NotFoundError:
            return False  # it was never started
        except BadObjectError as error:
            raise _unknown(run, error) from error
        if state.error:
            raise _unknown(run, state.error) from state.error
        return not (state.verdict and clock.parse(state.verdict.decided) <= self._since)


def _unknown(run: StoredRun, error: BadObjectError) -> StateError:
    return StateError(
        f"Run '{run.name}' cannot be read, so nobody knows whether its TPU is in use: {error.message}",
        hint="Delete its folder from the bucket, or leave --without-run away.",
    )


WIDTH = 8
"""Records read at once while one's own run is looked for."""
MOST_RUNS = 1000
"""Runs, from the newest, among which it is looked for."""


@dataclass(frozen=True)
class ListedRun:
    """What the listing of the bucket tells of a run."""

    name: str
    record: Object
    """run.json, which is written when the run is submitted, and never again."""
    verdict: Object | None = None
    is_open: bool = True
    """Whether it has not ended, or is to be started again."""
    outcome: str = ""
    """How it ended, for good; empty where the listing does not tell that."""
    notes: Object | None = None
    """notes.json, if anybody has written tags or notes."""

    @property
    def has_verdict(self) -> bool:
        """Whether it has one, also one that another attempt follows."""
        return self.verdict is not None

    @property
    def ended(self) -> str:
        """When its verdict was written last, by the bucket's clock; empty without one."""
        return self.verdict.updated if self.verdict else ""


def readers_of(bucket: Bucket, data_bucket: str, ref: DatasetRef) -> list[str]:
    """Return the runs that have not ended, or are to be started again, and read a version of a dataset."""

    def reads(name: str) -> bool:
        record = StoredRun(bucket, name).record
        is_there = record.data_bucket in ("", data_bucket)
        return is_there and record.dataset is not None and str(record.dataset) == str(ref)

    names = [item.name for item in listed_runs(bucket) if item.is_open]
    return [result.item for result in fanout(reads, names, width=WIDTH) if result.value]


def listed_runs(bucket: Bucket, warn: Report = silent, more: str = "") -> list[ListedRun]:
    """Return all runs of a bucket by one listing, oldest first; `more` is as in `Bucket.objects`.

    `warn` gets a line about each folder that is none, and each run that is being removed.
    """
    objects = bucket.objects(RUNS, glob=f"{RUNS}*/{{run,verdict,notes}}.json", more=more)
    return runs_in(objects, bucket.now(), warn)


def runs_in(objects: Sequence[Object], now: datetime, warn: Report = silent) -> list[ListedRun]:
    """Return the runs whose records are among listed objects, oldest first; `warn` is as above."""
    objects = [item for item in objects if item.name.count("/") == 2]
    verdicts = {item.name.split("/")[1]: item for item in objects if item.name.endswith("/verdict.json")}
    closed = verdicts.keys() - {item.name.split("/")[1] for item in objects if item.content_type == runs.OPEN}
    outcomes = outcomes_in(objects, now)
    notes = {item.name.split("/")[1]: item for item in objects if item.name.endswith("/notes.json")}
    listed = []
    for record in sorted(objects, key=lambda item: item.generation):
        name = record.name.split("/")[1]
        if not record.name.endswith("/run.json"):
            continue
        if not runs.NAME.fullmatch(name):
            warn(BadObjectError(record.name, "is in a folder that cannot be a run's").message)
        elif record.content_type == REMOVAL_TYPE:
            warn(f"Run '{name}' is being removed; 'tpuctl rm {name}' completes it.")
        else:
            outcome = outcomes.get(name, "")
            is_open = name not in closed
            listed.append(ListedRun(name, record, verdicts.get(name), is_open, outcome, notes.get(name)))
    return listed


def half_removed(objects: Iterable[Object]) -> list[str]:
    """Return the names of runs among listed objects whose removal was begun."""
    marks = [item.name.split("/") for item in objects if item.content_type == REMOVAL_TYPE]
    names = [path[1] for path in marks if path[2:] == ["run.json"]]
    return list(filter(runs.NAME.fullmatch, names))


def outcomes_in(objects: Iterable[Object], now: datetime, until: datetime | None = None) -> dict[str, str]:
    """Return how each run ended whose verdict is closed, as its listing tells: `StoredRun.is_closed`.

    With `until` only those whose verdict was written by then.
    """
    outcomes = {}
    for item in objects:
        if until is not None and item.updated > clock.iso(until):
            continue
        label = runs.read_verdict_type(item.content_type) if item.name.endswith("/verdict.json") else None
        if label and (label[1] == runs.BY_WORKERS or age_of(item, now) > CLOSE_AFTER):
            outcomes[item.name.split("/")[1]] = label[0]
    return outcomes


def unsettled(bucket: Bucket, names: Iterable[str], until: datetime) -> list[str]:
    """Return the runs of these names that may not have ended for good by a moment, in order.

    Of many, one listing tells which have; few are returned unseen, as reading them costs less.
    """
    listed = list(dict.fromkeys(names))
    if len(listed) <= FEW:
        return listed
    verdicts = bucket.objects(RUNS, glob=f"{RUNS}*/verdict.json")
    ended = outcomes_in(verdicts, bucket.now(), until)
    return [name for name in listed if name not in ended]


def stored_runs(bucket: Bucket, warn: Report = silent) -> list[StoredRun]:
    """Return all runs of a bucket, oldest first; `warn` gets a line about each folder that is none."""
    return [StoredRun(bucket, run.name, warn) for run in listed_runs(bucket, warn)]


@dataclass(frozen=True)
class StartedRun:
    """What the folder of a node names: an attempt of a run that was to start there."""

    run: str
    attempt: int
    started: str
    """ISO-8601, UTC."""


def started_on(bucket: Bucket, node: NodePaths) -> list[StartedRun]:
    """Return the attempts that the folder of a node names, the newest first.

    Each is named before it exists, so that none is missing; anybody can write names of others.
    """
    listed = sorted(bucket.objects(node.runs), key=lambda item: item.generation, reverse=True)
    named = ((RUN_ON_NODE.fullmatch(item.name.removeprefix(node.runs)), item.updated) for item in listed)
    return [StartedRun(match[1], int(match[2]), updated) for match, updated in named if match]


def find_run(bucket: Bucket, name: str | None, warn: Report = silent, submitter: str = "") -> StoredRun:
    """Return the run of this name, not read yet; without a name, one's own that was submitted last.

    One's own is of `submitter`, by default of this user on this machine, and has an attempt: a record alone
    may be anybody's. Raises UsageError for a name that
    no run can have, NotFoundError when the bucket has no run of one's own.
    """
    if name:
        run = StoredRun(bucket, runs.check_name(name), warn)
        item = bucket.stat(run.paths.record)
        if item and item.content_type == REMOVAL_TYPE:
            raise run.being_removed()
        return run
    stored = stored_runs(bucket, warn)
    submitter = submitter or runs.submitter()
    others: list[StoredRun] = []
    for run in _readable(stored[: -MOST_RUNS - 1 : -1], warn):
        if run.record.submitter == submitter:
            if run.attempt_numbers():
                return run
            warn(f"{run.paths.folder} has no attempt, so it is not taken for your last run.")
            continue
        others = others or [run]
    if not others:
        raise NotFoundError("There is no run yet.", hint="Submit one: tpuctl submit jobs/digits.py")
    raise NotFoundError(
        f"None of the last {len(stored[-MOST_RUNS:])} runs is of {submitter}.",
        hint=f"Name the run: the newest is '{others[0].name}' of {others[0].record.submitter}.",
    )


def _readable(stored: Iterable[StoredRun], warn: Report) -> Iterator[StoredRun]:
    """Yield the runs whose records can be read, in order, a few read ahead."""
    remaining = iter(stored)
    while batch := list(islice(remaining, WIDTH)):
        for result in fanout(lambda run: run.record, batch):
            if isinstance(result.error, BadObjectError):
                warn(result.error.message)
            elif result.error and not isinstance(result.error, NotFoundError):
                raise result.error
            elif not result.error:
                yield result.item
