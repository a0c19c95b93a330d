"""Removes runs that have ended: what stands in the place of run.json comes first, and goes last.

From the first request on no reader takes the rest for a run; whoever removes it again deletes what is left.
The code stays: bundles are named by their content, and other runs may use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import ATTEMPT_FOLDER, NodePaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.errors import ConflictError, NotFoundError, StateError, TpuctlError, joined_hints
from tpuctl.flows.nodes.lookup import take_inventory
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.attempt_costs import NOT_ON_A_NODE, PriceOf, RunCosts, known_costs, total
from tpuctl.flows.runs.evidence.decision import ENDED, HostState, WorkerWord
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses, sign_of
from tpuctl.flows.runs.lookup import outcomes_in
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.state import ABANDONED, ABANDONED_AFTER, RunState
from tpuctl.flows.runs.stored_attempt import age_of
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values
from tpuctl.printable import named
from tpuctl.runs import BY_MACHINE, RANKS, Verdict
from tpuctl.upkeep import LARGEST_REMOVAL, REMOVAL_TYPE, Notes, Removal, encode_removal, find_removal

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object


REST = "rest"
"""State of objects without a record of a run."""


def outcome_in(run: StoredRun, objects: Iterable[Object]) -> str:
    """Return how a run has ended for sure, as the list of its objects tells; empty where they must be read.

    It tells once the verdict is final, and nothing of an attempt was written for two hours.
    """
    listed, now = list(objects), run.bucket.now()
    if _recent(run, listed):
        return ""
    verdicts = [item for item in listed if item.name == run.paths.verdict]
    return outcomes_in(verdicts, now).get(run.name, "")


def _recent(run: StoredRun, objects: Iterable[Object]) -> set[str]:
    """Return the folders of the attempts of which something was written in the last two hours."""
    now = run.bucket.now()
    written = (item for item in objects if item.name.startswith(run.paths.attempts))
    recent = (item.name for item in written if age_of(item, now) <= CLOSE_AFTER)
    return {name.removeprefix(run.paths.attempts).partition("/")[0] for name in recent}


class StillNeededError(StateError):
    """A run goes on, is to be started again, or nobody knows whether it does."""


def ended_state(run: StoredRun, witnesses: Witnesses, *, writes: bool = True) -> RunState | None:
    """Return how a run has ended; None for one that was never started, or of which there is only a rest.

    With `writes` a verdict that can be decided now is written. Raises StillNeededError or RecordMissingError.
    """
    try:
        state = settle(run, witnesses) if writes else RunState(run.verdict())
    except NotFoundError:
        _check_abandoned(run)
        return None
    if state.verdict is None and not state.error and not run.attempt_numbers():
        sign = state.sign or sign_of(run.bucket, run.name)
        if sign:
            raise RecordMissingError(sign)
        _check_abandoned(run)
        return None
    if state.error:
        raise _refusal(run, f"cannot be read, so nobody knows whether it has ended: {state.error.message}")
    if state.verdict is None:
        doubt = f" ({state.label}{f': {state.reason}' if state.reason else ''})" if writes else ""
        raise _refusal(run, f"has not ended{doubt}.", f"Stop it first: tpuctl cancel {run.name}")
    _check_verdict(run, state.verdict)
    _check_workers(run, state.verdict, witnesses)
    return state


def unstarted_state(run: StoredRun) -> str:
    """Return the state of a run without an attempt."""
    return ABANDONED if run.bucket.stat(run.paths.record) else REST


def _check_abandoned(run: StoredRun) -> None:
    item = run.bucket.stat(run.paths.record)
    if item and age_of(item, run.bucket.now()) <= ABANDONED_AFTER:
        reason = "was submitted just now: its start may be on its way."
        raise _refusal(run, reason, f"End it first: tpuctl cancel {run.name}")


def _check_verdict(run: StoredRun, verdict: Verdict) -> None:
    """Raise StillNeededError for a verdict that another attempt follows, or that is a guess."""
    if verdict.restarts:
        reason = f"is to be started again ({verdict.outcome})."
        raise _refusal(run, reason, f"End it first: tpuctl cancel {run.name}")
    if verdict.rank < RANKS[BY_MACHINE]:
        node = verdict.tpu.name if verdict.tpu else "its TPU"
        reason = f"may go on: {verdict.evidence}. Silence does not say that it has ended."
        hint = joined_hints(f"See: tpuctl why {node}", f"End whatever runs there: tpuctl down {node}")
        raise _refusal(run, reason, hint)
    pending = leases.current(run, verdict.attempt + 1)
    if pending:
        raise _refusal(run, f"is being started again by {pending.holder}.", f"tpuctl wait {run.name}")


def _check_workers(run: StoredRun, verdict: Verdict, witnesses: Witnesses) -> None:
    """Raise StillNeededError where a worker may be at work: others end a while after the first one failed."""
    attempt = run.attempt(verdict.attempt)
    try:
        words = attempt.words()
    except NotFoundError:
        return  # it was stopped before it had an attempt
    except BadObjectError as error:
        if age_of(run.bucket.stat(run.paths.verdict), run.bucket.now()) > CLOSE_AFTER:
            return
        raise _refusal(run, f"cannot be read: {error.message}") from error
    unsure = [word for word in words if _may_work(word, is_closed=run.is_closed)]
    if not unsure or witnesses.node(run.bucket, attempt.record.tpu.id).state in ENDED:
        return
    hosts = witnesses.hosts(run.name, attempt.record, [word.worker for word in unsure])
    free = {worker for worker, host in hosts.items() if host.state in (HostState.GONE, HostState.ABSENT)}
    busy = [word.worker for word in unsure if word.worker not in free]
    if busy:
        reason = f"may go on: {named(busy)} did not say that the script ended."
        raise _refusal(run, reason, f"See: tpuctl why {attempt.record.tpu.name}")


def _check_hosts(run: StoredRun, objects: Iterable[Object], witnesses: Witnesses) -> None:
    """Raise StillNeededError where a host has the run at work, whatever the bucket says.

    Another job of the bucket may have overwritten what the workers say, and what came of the attempt.
    """
    numbers = [int(folder) for folder in _recent(run, objects) if ATTEMPT_FOLDER.fullmatch(folder)]
    records = fanout(lambda number: run.attempt(number).record, numbers, width=WIDTH)
    nodes = {part for result in records if result.value for part in result.value.tpu.id.parts}
    for answer in values(fanout(witnesses.at_work, sorted(nodes, key=str), width=WIDTH)):
        busy = [item for item in answer.runs if item.run == run.name]
        if busy:
            node, workers = busy[0].node.name, named([item.worker for item in busy])
            hint = joined_hints(f"See: tpuctl why {node}", f"End whatever runs there: tpuctl down {node}")
            raise _refusal(run, f"is still running on {node}, {workers}.", hint)


def _may_work(word: WorkerWord, *, is_closed: bool) -> bool:
    """Whether a worker has not ended; a final verdict counts once nothing more was heard for two hours."""
    return not word.is_over and not (is_closed and word.age > CLOSE_AFTER)


def _refusal(run: StoredRun, reason: str, hint: str = "") -> StillNeededError:
    return StillNeededError(f"Run '{run.name}' {reason}", hint=hint, run=run.name)


WIDTH = 8
"""Objects deleted at once."""
TRIES = 5
"""Looks at a record that others change, and at a folder into which a worker still writes."""
BEGUN = "being removed"
"""State of a run of which only a rest is there."""


@dataclass(frozen=True)
class RemovalPlan:
    """A run that is to be removed; what is not in the list of its objects is read when it is asked for."""

    run: StoredRun
    state: str
    """How it ended, or that its removal was begun before."""
    objects: tuple[Object, ...]
    attempts: tuple[int, ...]
    price_of: PriceOf

    @property
    def submitted(self) -> str:
        """By the bucket's clock; empty without a record."""
        return next((item.updated for item in self.objects if item.name == self.run.paths.record), "")

    @cached_property
    def submitter(self) -> str:
        """Empty where the record cannot be read."""
        try:
            return "" if self.state == BEGUN else self.run.record.submitter
        except (BadObjectError, NotFoundError, RecordMissingError):
            return ""

    @cached_property
    def cost(self) -> Price:
        """What its attempts have cost."""
        if self.state == BEGUN or not self.submitted:
            return NOT_ON_A_NODE
        try:
            verdict = self.run.verdict()
        except TpuctlError as error:
            return unknown(error.message)
        costs = RunCosts(self.run, self.price_of, self.submitted)
        spent = known_costs(costs, RunState(verdict), self.run.bucket.now())
        return total(spent).price.rounded() if verdict else NOT_ON_A_NODE

    @cached_property
    def notes(self) -> Notes | None:
        """None without any, and where they cannot be read."""
        if self.state == BEGUN or self.run.paths.notes not in {item.name for item in self.objects}:
            return None
        try:
            return self.run.notes()
        except BadObjectError:
            return None

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(item.size for item in self.objects)


def plan_removal(
    run: StoredRun,
    witnesses: Witnesses,
    price_of: PriceOf,
    *,
    is_rehearsal: bool = False,
    listed: Sequence[Object] = (),
) -> RemovalPlan:
    """Return what removes a run; a rehearsal writes no verdict of a run that has ended by now.

    `listed` are its objects, if they are known.

    Raises NotFoundError without anything of the run, StillNeededError for one that has not ended for sure.
    """
    objects = tuple(listed or run.bucket.objects(run.paths.folder))
    record = next((item for item in objects if item.name == run.paths.record), None)
    if not objects:
        raise run.not_found()
    if record and record.content_type == REMOVAL_TYPE:
        return RemovalPlan(run, BEGUN, objects, (), price_of)
    outcome = outcome_in(run, objects)
    if not outcome:
        state = ended_state(run, witnesses, writes=not is_rehearsal)
        _check_hosts(run, objects, witnesses)
        outcome = state.verdict.outcome if state and state.verdict else unstarted_state(run)
    return RemovalPlan(run, outcome, objects, tuple(run.attempts_in(objects)), price_of)


def read_all(plans: Iterable[RemovalPlan]) -> None:
    """Read what plans can tell before their runs are removed."""
    values(fanout(lambda plan: (plan.submitter, plan.cost, plan.notes), plans, width=WIDTH))


def reasons_to_keep(witnesses: Witnesses, plans: Sequence[RemovalPlan]) -> dict[str, str]:
    """Return why the records of some runs are needed: a TPU that was made for the run bills, or may.

    By its run's record watchers delete it.
    """
    if not plans:
        return {}
    try:
        inventory = take_inventory(witnesses.provider)
        silent = ", ".join(inventory.unreachable)
        doubt, there = f"No answer from {silent}." if silent else "", inventory.allocations
    except TpuctlError as error:
        doubt, there = error.message, ()
    unknown = f"Whether a TPU that was made for it still bills is unknown: {doubt}"
    reasons = {plan.run.name: unknown for plan in plans if doubt}
    for plan in plans:
        for item in there:
            if item.managed and item.is_made_for(plan.run.name, plan.run.bucket.name) and not item.is_over:
                made = f"{item.name} in {item.zone} was made for it"
                reasons[plan.run.name] = f"{made}, and goes on billing until '{item.deletion}'."
    return reasons


def requests(bucket: Bucket, plans: Iterable[RemovalPlan]) -> list[HttpRequest]:
    """Return what `remove` sends, for --dry-run."""
    rehearsal = bucket.dry_run()
    for plan in plans:
        names = {item.name: item for item in plan.objects}
        record = names.pop(plan.run.paths.record, None)
        if plan.state != BEGUN:
            mark = encode_removal(Removal(plan.run.name, "", clock.iso(bucket.now()), plan.attempts))
            if record:
                rehearsal.replace(record, mark, REMOVAL_TYPE)
            else:
                rehearsal.create(plan.run.paths.record, mark, REMOVAL_TYPE)
        for item in names.values():
            rehearsal.remove(item)
        if record:
            rehearsal.remove(record)
    return rehearsal.requests


def remove(plan: RemovalPlan, by: str, report: Report = silent) -> int:
    """Delete everything of a run, and return the number of objects; run again after a kill, it completes it.

    Raises StillNeededError if the run was started again meanwhile: then nothing is deleted.
    """
    run = plan.run
    mark, removal = _mark(plan, by)
    _delete_notes_of_nodes(run, _checked_attempts(run, mark, removal))
    count = 0
    for _ in range(TRIES):
        listed = run.bucket.objects(run.paths.folder)
        if (mark.name, mark.generation) not in {(item.name, item.generation) for item in listed}:
            return count  # another command has removed it to the end; what is there now is another run's
        rest = [item for item in listed if item.name != mark.name]
        if not rest:
            break
        report(f"{run.name}: deleting {len(rest)} objects")
        rest.sort(key=lambda item: item.name != run.paths.verdict)
        run.bucket.remove(rest[0])
        values(fanout(run.bucket.remove, rest[1:], width=WIDTH))
        count += len(rest)
    run.bucket.remove(mark)
    launch_values.forget(run.bucket.name, run.name)
    return count + 1


def _mark(plan: RemovalPlan, by: str) -> tuple[Object, Removal]:
    """Put the removal in the place of run.json, unless it is there; from now on the run is none."""
    run, bucket = plan.run, plan.run.bucket
    known = {(item.name, item.generation) for item in plan.objects}
    for _ in range(TRIES):
        item = bucket.stat(run.paths.record)
        if item is None and plan.state not in (BEGUN, REST):
            raise run.not_found()  # another command has just removed it
        try:
            data = bucket.read_listed(item, LARGEST_REMOVAL) if item else b""
            begun = find_removal(data, run.name)
            if item and begun:
                return item, begun
            if item and (item.name, item.generation) not in known:
                raise _changed(run)
            removal = Removal(run.name, by, clock.iso(bucket.now()), plan.attempts, data)
            if item:
                bucket.replace(item, encode_removal(removal), REMOVAL_TYPE)
            else:
                bucket.create(run.paths.record, encode_removal(removal), REMOVAL_TYPE)
        except (ConflictError, NotFoundError):
            continue  # another command was first
    raise ConflictError(f"The record of run '{run.name}' keeps changing.", hint="Try again.")


def _changed(run: StoredRun) -> StillNeededError:
    return StillNeededError(f"Run '{run.name}' is another by now.", hint="See: tpuctl runs", run=run.name)


def _checked_attempts(run: StoredRun, mark: Object, removal: Removal) -> list[int]:
    """Return the attempts whose records are there: the removal may name thousands that are not.

    Undoes the mark and raises StillNeededError if one was made before it that nobody has looked at.
    One that was made later has seen the mark, and starts nothing.
    """
    records = run.bucket.objects(run.paths.attempts, glob=f"{run.paths.attempts}*/attempt.json")
    folders = ((item.name.split("/")[-2], item) for item in records)
    numbers = {int(folder): item for folder, item in folders if ATTEMPT_FOLDER.fullmatch(folder)}
    known = set(removal.attempts)
    for folder, item in numbers.items():
        if folder not in known and item.generation < mark.generation:
            if removal.record:
                run.bucket.replace(mark, removal.record)
            else:
                run.bucket.remove(mark)
            raise StillNeededError(
                f"Run '{run.name}' was started again meanwhile, as attempt {folder}: nothing was removed.",
                hint=f"Stop it first: tpuctl cancel {run.name}",
                run=run.name,
            )
    return sorted(known & numbers.keys())


def _delete_notes_of_nodes(run: StoredRun, attempts: Iterable[int]) -> None:
    """Delete what the folders of nodes say of a run; the attempts' records name the nodes."""
    for number in attempts:
        try:
            node = run.attempt(number).record.tpu.id
        except (BadObjectError, NotFoundError, RecordMissingError):
            continue
        for part in node.parts:
            item = run.bucket.stat(NodePaths.of(part).run(run.name, number))
            if item:
                run.bucket.remove(item)
