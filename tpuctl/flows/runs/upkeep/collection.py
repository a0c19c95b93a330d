"""Chooses old runs to remove: all but the newest, those with the tag `keep`, and those that go on.

- Changes the tags and notes of a run: of two changes at once none is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tpuctl import clock, runs, upkeep
from tpuctl.bucket_layout import RUNS
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import ConflictError, NotFoundError, StateError, TpuctlError, UsageError
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.attempt_costs import PriceOf
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import WIDTH, ListedRun, half_removed, runs_in
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep.removal import RemovalPlan, plan_removal, reasons_to_keep
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout
from tpuctl.runs import decode, encode, read_run_type
from tpuctl.upkeep import KEEP, Note, Notes, TagChange

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


TRIES = 200
"""Times that a change is tried; each time it fails, somebody else's has succeeded."""

Change = Callable[[Notes], Notes]


def tagging(change: TagChange) -> Change:
    """Return the change that sets and removes tags."""

    def apply(before: Notes) -> Notes:
        tags = {key: value for key, value in before.tags.items() if key not in change.removed}
        tags |= change.tags
        if len(tags) > upkeep.MOST_TAGS:
            raise UsageError(
                f"Run '{before.run}' would have {len(tags)} tags; {upkeep.MOST_TAGS} are the most.",
                hint=f"Remove some: tpuctl tag {before.run} {next(iter(before.tags))}-",
            )
        return msgspec.structs.replace(before, tags=dict(sorted(tags.items())))

    return apply


def noting(text: str, by: str, at: str) -> Change:
    """Return the change that adds a note."""
    note = Note(upkeep.check_note(text), by[:256], at, secrets.token_hex(8))

    def apply(before: Notes) -> Notes:
        if any(other.token == note.token for other in before.notes):
            return before  # it was written, and the answer was lost
        if len(before.notes) >= upkeep.MOST_NOTES:
            raise UsageError(
                f"Run '{before.run}' has {upkeep.MOST_NOTES} notes, which is the most.",
                hint="Keep longer texts beside the run, and name their place in a tag.",
            )
        return msgspec.structs.replace(before, notes=(*before.notes, note))

    return apply


def now(run: StoredRun) -> str:
    """Return the time by the bucket's clock."""
    return clock.iso(run.bucket.now())


def update(run: StoredRun, change: Change) -> Notes:
    """Change the notes of a run, and return them as they are now.

    Raises NotFoundError without such a run, BadObjectError for notes that are no record, UsageError for too
    many.
    """
    check_exists(run)
    for _ in range(TRIES):
        item = run.bucket.stat(run.paths.notes)
        try:
            data = run.bucket.read_listed(item, upkeep.LARGEST_NOTES) if item else b""
            before = decode(data, Notes, run.paths.notes) if item else Notes(run.name)
            after = change(before)
            if after == before:
                return after
            if item:
                run.bucket.replace(item, encode(after))
            else:
                run.bucket.create(run.paths.notes, encode(after))
        except (ConflictError, NotFoundError):
            continue  # another change was first
        return after
    raise ConflictError(f"The notes of run '{run.name}' keep changing.", hint="Try again.")


def requests(run: StoredRun, change: Change) -> list[HttpRequest]:
    """Return what `update` would send, for --dry-run."""
    check_exists(run)
    before, item = run.notes(), run.bucket.stat(run.paths.notes)
    after, rehearsal = change(before), run.bucket.dry_run()
    if after != before and item:
        rehearsal.replace(item, encode(after))
    elif after != before:
        rehearsal.create(run.paths.notes, encode(after))
    return rehearsal.requests


def check_exists(run: StoredRun) -> None:
    """Raise NotFoundError without such a run; one whose record cannot be read is one."""
    try:
        run.record  # noqa: B018  read for its error
    except BadObjectError:
        pass
