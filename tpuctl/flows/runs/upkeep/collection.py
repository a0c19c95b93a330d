"""Chooses old runs to remove: all but the newest, those with the tag `keep`, and those that go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from tpuctl import clock, runs
from tpuctl.bucket_layout import RUNS
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError, StateError, TpuctlError
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.costs.attempts import PriceOf
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import WIDTH, ListedRun, half_removed, runs_in
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep.removal import RemovalPlan, plan_removal, reasons_to_keep
from tpuctl.parallel import fanout
from tpuctl.runs import read_run_type
from tpuctl.upkeep.notes import KEEP

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


@dataclass(frozen=True)
class Rule:
    """Which runs are old."""

    keep: int
    """The newest so many are kept."""
    owner: str = ""
    """Only runs of this account, or without a recorded one from this machine; empty for everybody's."""
    age: float = 0.0
    """Seconds, by the bucket's clock, before which they were submitted."""


@dataclass(frozen=True)
class Collection:
    """Runs to be removed, and why others stay."""

    plans: Sequence[RemovalPlan]
    tagged: Sequence[str]
    """Old runs with the tag `keep`."""
    refused: Sequence[TpuctlError]
    """Why others stay: they run, their TPUs bill, or nobody knows."""


def plan_collection(
    bucket: Bucket, witnesses: Witnesses, price_of: PriceOf, rule: Rule, warn: Report = silent, *,
    is_rehearsal: bool = False,
) -> Collection:  # fmt: skip
    """Return the old runs of a bucket; a run that cannot be read is nobody's, and stays.

    Those whose removal was begun are among them.
    """
    objects = dict[str, list["Object"]]()
    for item in bucket.objects(RUNS):
        objects.setdefault(item.name.split("/")[1], []).append(item)
    everything = [item for of_run in objects.values() for item in of_run]
    own = _own(bucket, runs_in(everything, bucket.now()), rule.owner, warn)
    before = clock.iso(bucket.now() - timedelta(seconds=rule.age))
    old = [item for item in own[: max(0, len(own) - rule.keep)] if item.record.updated <= before]
    kept = {item.name for item in old if item.notes and _is_kept(StoredRun(bucket, item.name), warn)}
    names = [*half_removed(everything), *(item.name for item in old if item.name not in kept)]
    plan = partial(plan_removal, witnesses=witnesses, price_of=price_of, is_rehearsal=is_rehearsal)
    results = fanout(
        lambda name: plan(StoredRun(bucket, name, warn), listed=objects[name]), names, width=WIDTH
    )
    plans = [result.value for result in results if result.value]
    errors = [result.error for result in results]
    needed = reasons_to_keep(witnesses, plans)
    return Collection(
        [plan for plan in plans if plan.run.name not in needed],
        sorted(kept),
        [
            *(error for error in errors if error and not isinstance(error, NotFoundError)),
            *(StateError(f"Run '{name}': {reason}", run=name) for name, reason in needed.items()),
        ],
    )


def _own(bucket: Bucket, listed: list[ListedRun], owner: str, warn: Report) -> list[ListedRun]:
    """Return the runs of an owner, the oldest first."""
    if not owner:
        return listed
    results = fanout(lambda item: _is_own(bucket, item, owner), listed, width=WIDTH)
    for result in results:
        if result.error and not isinstance(result.error, NotFoundError):
            warn(result.error.message)
    return [result.item for result in results if result.value]


def _is_own(bucket: Bucket, listed: ListedRun, owner: str) -> bool:
    """Whether it is an owner's: where no owner is recorded, whoever submits from here."""
    label = read_run_type(listed.record.content_type)
    if label:
        return label == owner
    run = StoredRun(bucket, listed.name)
    machine = run.record.machine
    if machine and machine.owner:
        return machine.owner == owner
    return run.record.submitter == runs.submitter()


def _is_kept(run: StoredRun, warn: Report) -> bool:
    """Whether a run has the tag that keeps it; tags that cannot be read may say so."""
    try:
        return KEEP in run.notes().tags
    except BadObjectError as error:
        warn(error.message)
        return True
